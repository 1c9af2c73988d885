"""The package `openai`."""

import base64
import json

import openai
from openai import OpenAI

from tasks import CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER

TOOL = {"type": "function", "function": WEATHER}


def connect(job):
    # No retries, so that each scenario makes as many calls as it says.
    return OpenAI(base_url=job.base_url, api_key=job.api_key, max_retries=0, timeout=30)


def ask(job, text="", **more):
    messages = more.pop("messages", [{"role": "user", "content": f"{text} {job.prompt}"}])
    return connect(job).chat.completions.create(model=job.model, messages=messages, **more)


def counts(usage):
    return usage and [usage.prompt_tokens, usage.completion_tokens]


def chat(job):
    answer = ask(job, "Say hello")
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def read(chunks, most=None):
    """The text of a stream, its pieces and its usage; at most so many pieces."""
    seen = {"text": "", "pieces": 0, "usage": None}
    for chunk in chunks:
        seen["usage"] = counts(chunk.usage) or seen["usage"]
        if chunk.choices and chunk.choices[0].delta.content:
            seen["text"] += chunk.choices[0].delta.content
            seen["pieces"] += 1
        if seen["pieces"] == most:
            break
    return seen


def stream(job):
    return read(ask(job, "Say hello", stream=True, stream_options={"include_usage": True}))


def stream_without_usage(job):
    return read(ask(job, "Say hello", stream=True))


def provider_leaves(job):
    try:
        return {"raised": None, **read(ask(job, stream=True))}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    with ask(job, stream=True) as chunks:
        return read(chunks, READ_BEFORE_LEAVING)


def tools(job):
    question = {"role": "user", "content": f"{QUESTION} {job.prompt}"}
    first = ask(job, messages=[question], tools=[TOOL]).choices[0]
    call = first.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = ask(job, messages=[question, first.message, result], tools=[TOOL]).choices[0]
    arguments = json.loads(call.function.arguments)
    return {"calls": [[call.function.name, arguments]], "text": second.message.content}


def parallel_tools(job):
    calls = {}
    for chunk in ask(job, QUESTION, stream=True, tools=[TOOL]):
        for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = calls.setdefault(part.index, [part.function.name, "", 0])
            call[1] += part.function.arguments or ""
            call[2] += 1
    is_in_parts = all(parts > 2 for _, _, parts in calls.values())
    assert is_in_parts or job.provider == "google", "the arguments came whole"
    return {"calls": [[name, json.loads(arguments)] for name, arguments, _ in calls.values()]}


def structured(job):
    schema = {"name": "city", "schema": CITY, "strict": True}
    answer = ask(job, "Describe Oslo", response_format={"type": "json_schema", "json_schema": schema})
    return {"value": json.loads(answer.choices[0].message.content)}


def ask_about(job, question, part):
    parts = [{"type": "text", "text": f"{question} {job.prompt}"}, part]
    answer = ask(job, messages=[{"role": "user", "content": parts}])
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def image_url(job):
    return ask_about(job, LOOK, {"type": "image_url", "image_url": {"url": IMAGE_URL}})


def image_base64(job):
    return ask_about(job, LOOK, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})


def audio(job):
    return ask_about(job, LISTEN, {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}})


def embeddings(job):
    answer = connect(job).embeddings.create(model=job.model, input=[*TEXTS, job.prompt])
    return {"lengths": [len(item.embedding) for item in answer.data], "usage": [answer.usage.prompt_tokens, 0]}


def responses(job):
    answer = connect(job).responses.create(model=job.model, input=f"Say hello {job.prompt}")
    return {"text": answer.output_text, "usage": [answer.usage.input_tokens, answer.usage.output_tokens]}


def responses_stream(job):
    seen = {"text": "", "pieces": 0, "usage": None}
    for event in connect(job).responses.create(model=job.model, input=f"Say hello {job.prompt}", stream=True):
        if event.type == "response.output_text.delta":
            seen["text"] += event.delta
            seen["pieces"] += 1
        if event.type == "response.completed":
            seen["usage"] = [event.response.usage.input_tokens, event.response.usage.output_tokens]
    return seen


def responses_image(job):
    parts = [
        {"type": "input_text", "text": f"{LOOK} {job.prompt}"},
        {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"},
    ]
    answer = connect(job).responses.create(model=job.model, input=[{"role": "user", "content": parts}])
    return {"text": answer.output_text, "usage": [answer.usage.input_tokens, answer.usage.output_tokens]}


def speech(job):
    text = f"Say hello {job.prompt}"
    sound = connect(job).audio.speech.create(model=job.model, voice="alloy", input=text)
    return {"bytes": len(sound.read()), "characters": len(text)}


def transcription(job):
    file = ("mock.wav", base64.b64decode(WAV))
    answer = connect(job).audio.transcriptions.create(model=job.model, file=file, prompt=job.prompt)
    return {"text": answer.text}


def image(job):
    answer = connect(job).images.generate(model=job.model, prompt=f"A cat {job.prompt}")
    return {"bytes": len(base64.b64decode(answer.data[0].b64_json))}


def refused(job):
    try:
        ask(job, "Say hello")
    except openai.APIStatusError as error:
        return {"status": error.status_code, "code": error.code, "kind": type(error).__name__}
    return {"status": 200}


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
