"""The package `cohere`, with its client of version 2."""

import json

import cohere
from cohere.core.api_error import ApiError

from tasks import CITY, IMAGE_URL, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WEATHER

TOOL = {"type": "function", "function": WEATHER}

# It would repeat a call.
ONCE = {"max_retries": 0}

# What docs/clients.md says to set. The package removes `/v1` from a URL with `cohere.com` or `cohere.ai` in it.
DOCUMENTED = "http://127.0.0.1:8080/v1/forward?u=https://api.COHERE.com"


def connect(job):
    kept = cohere.ClientV2(api_key=job.api_key, base_url=DOCUMENTED)._client_wrapper.get_base_url()
    assert kept == DOCUMENTED, f"the package makes {kept} of it"
    return cohere.ClientV2(api_key=job.api_key, base_url=job.base_url, timeout=30)


def arguments_of(job, text="", **more):
    messages = more.pop("messages", [{"role": "user", "content": f"{text} {job.prompt}"}])
    return {"model": job.model, "messages": messages, "request_options": ONCE, **more}


def ask(job, text="", **more):
    return connect(job).chat(**arguments_of(job, text, **more))


def counts(usage):
    return usage and [int(usage.billed_units.input_tokens), int(usage.billed_units.output_tokens)]


def text_of(answer):
    return "".join(content.text for content in answer.message.content if content.type == "text")


def chat(job):
    answer = ask(job, "Say hello")
    return {"text": text_of(answer), "usage": counts(answer.usage)}


def read(events, most=None):
    seen = {"text": "", "pieces": 0, "usage": None}
    for event in events:
        if event.type == "content-delta" and event.delta.message.content.text:
            seen["text"] += event.delta.message.content.text
            seen["pieces"] += 1
        if event.type == "message-end":
            seen["usage"] = counts(event.delta.usage)
        if seen["pieces"] == most:
            break
    return seen


def stream(job):
    return read(connect(job).chat_stream(**arguments_of(job, "Say hello")))


def thinking(job):
    answer = ask(job, "Say hello", thinking={"type": "enabled"})
    thoughts = "".join(content.thinking for content in answer.message.content if content.type == "thinking")
    return {"text": text_of(answer), "thoughts": thoughts, "usage": counts(answer.usage)}


def provider_leaves(job):
    try:
        return {"raised": None, **read(connect(job).chat_stream(**arguments_of(job)))}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    events = connect(job).chat_stream(**arguments_of(job))
    seen = read(events, READ_BEFORE_LEAVING)
    events.close()
    return seen


def tools(job):
    question = {"role": "user", "content": f"{QUESTION} {job.prompt}"}
    first = ask(job, messages=[question], tools=[TOOL]).message
    call = first.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    said = [question, {"role": "assistant", "tool_calls": first.tool_calls}, result]
    arguments = json.loads(call.function.arguments)
    return {"calls": [[call.function.name, arguments]], "text": text_of(ask(job, messages=said, tools=[TOOL]))}


def parallel_tools(job):
    calls = {}
    for event in connect(job).chat_stream(**arguments_of(job, QUESTION, tools=[TOOL])):
        if event.type == "tool-call-start":
            calls[event.index] = [event.delta.message.tool_calls.function.name, "", 0]
        if event.type == "tool-call-delta":
            calls[event.index][1] += event.delta.message.tool_calls.function.arguments
            calls[event.index][2] += 1
    assert all(parts > 2 for _, _, parts in calls.values()), "the arguments came whole"
    return {"calls": [[name, json.loads(arguments)] for name, arguments, _ in calls.values()]}


def structured(job):
    answer = ask(job, "Describe Oslo", response_format={"type": "json_object", "json_schema": CITY})
    return {"value": json.loads(text_of(answer))}


def look(job, url):
    parts = [{"type": "text", "text": f"{LOOK} {job.prompt}"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = ask(job, messages=[{"role": "user", "content": parts}])
    return {"text": text_of(answer), "usage": counts(answer.usage)}


def image_url(job):
    return look(job, IMAGE_URL)


def image_base64(job):
    return look(job, f"data:image/png;base64,{PNG}")


def embeddings(job):
    answer = connect(job).embed(
        model=job.model, texts=[*TEXTS, job.prompt], input_type="search_document", embedding_types=["float"],
        request_options=ONCE,
    )
    return {"lengths": [len(vector) for vector in answer.embeddings.float_]}


def refused(job):
    try:
        ask(job, "Say hello")
    except ApiError as error:
        return {"status": error.status_code, "code": code_of(error.body), "kind": type(error).__name__}
    return {"status": 200}


def code_of(body):
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("code") if isinstance(error, dict) else None


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
