"""The package `anthropic`."""

import json

import anthropic
from anthropic import Anthropic

from tasks import CITY, IMAGE_URL, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, WEATHER

TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}


def connect(job):
    return Anthropic(base_url=job.base_url, api_key=job.api_key, max_retries=0, timeout=30)


def arguments_of(job, text="", **more):
    messages = more.pop("messages", [{"role": "user", "content": f"{text} {job.prompt}"}])
    return {"model": job.model, "max_tokens": 4000, "messages": messages, **more}


def ask(job, text="", **more):
    return connect(job).messages.create(**arguments_of(job, text, **more))


def counts(usage):
    return [usage.input_tokens, usage.output_tokens]


def text_of(answer):
    return "".join(block.text for block in answer.content if block.type == "text")


def chat(job):
    answer = ask(job, "Say hello")
    return {"text": text_of(answer), "usage": counts(answer.usage)}


def stream(job):
    with connect(job).messages.stream(**arguments_of(job, "Say hello")) as events:
        pieces = list(events.text_stream)
        return {"text": "".join(pieces), "pieces": len(pieces), "usage": counts(events.get_final_message().usage)}


def thinking(job):
    wish = {"type": "enabled", "budget_tokens": 1024}
    with connect(job).messages.stream(**arguments_of(job, "Say hello", thinking=wish)) as events:
        answer = events.get_final_message()
    thought = next(block for block in answer.content if block.type == "thinking")
    assert thought.signature, "the thoughts are not signed"
    return {"text": text_of(answer), "thoughts": thought.thinking, "usage": counts(answer.usage)}


def provider_leaves(job):
    try:
        with connect(job).messages.stream(**arguments_of(job)) as events:
            return {"raised": None, "text": "".join(events.text_stream)}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    pieces = []
    with connect(job).messages.stream(**arguments_of(job)) as events:
        for piece in events.text_stream:
            pieces.append(piece)
            if len(pieces) == READ_BEFORE_LEAVING:
                break
    return {"pieces": len(pieces)}


def tools(job):
    question = {"role": "user", "content": f"{QUESTION} {job.prompt}"}
    first = ask(job, messages=[question], tools=[TOOL])
    call = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    said = [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    return {"calls": [[call.name, call.input]], "text": text_of(ask(job, messages=said, tools=[TOOL]))}


def parallel_tools(job):
    with connect(job).messages.stream(**arguments_of(job, QUESTION, tools=[TOOL])) as events:
        parts = sum(1 for event in events if event.type == "input_json" and event.partial_json)
        answer = events.get_final_message()
    assert parts > 4 or job.provider == "google", "the arguments came whole"
    return {"calls": [[block.name, block.input] for block in answer.content if block.type == "tool_use"]}


def structured(job):
    wish = {"format": {"type": "json_schema", "schema": CITY}}
    return {"value": json.loads(text_of(ask(job, "Describe Oslo", output_config=wish)))}


def look(job, source):
    parts = [{"type": "image", "source": source}, {"type": "text", "text": f"{LOOK} {job.prompt}"}]
    answer = ask(job, messages=[{"role": "user", "content": parts}])
    return {"text": text_of(answer), "usage": counts(answer.usage)}


def image_url(job):
    return look(job, {"type": "url", "url": IMAGE_URL})


def image_base64(job):
    return look(job, {"type": "base64", "media_type": "image/png", "data": PNG})


def refused(job):
    try:
        ask(job, "Say hello")
    except anthropic.APIStatusError as error:
        return {"status": error.status_code, "code": code_of(error.body), "kind": type(error).__name__}
    return {"status": 200}


def code_of(body):
    return body.get("error", {}).get("code") if isinstance(body, dict) else None


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
