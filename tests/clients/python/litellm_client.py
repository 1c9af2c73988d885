"""The package `litellm`, as a library. The job's `format` chooses the provider that it speaks to."""

import json
import os

# Without them, the package downloads its price list when it is imported, and a list of headers in its first call to Anthropic.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"

# litellm imports it in its first call, while openai, which it calls in another thread, takes whatever is imported of it by then.
import httpx2  # noqa: E402, F401
import litellm  # noqa: E402

from tasks import CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True

TOOL = {"type": "function", "function": WEATHER}
PREFIXES = {"openai": "openai", "anthropic": "anthropic", "google": "gemini", "bedrock": "bedrock/converse"}


def place(job):
    name = f"{PREFIXES[job.format]}/{job.model}"
    return {"model": name, "api_base": job.base_url, "api_key": job.api_key, "num_retries": 0, "timeout": 30}


def ask(job, text="", **more):
    messages = more.pop("messages", [{"role": "user", "content": f"{text} {job.prompt}"}])
    # The retries of the package below, which this one would set to 2.
    return litellm.completion(messages=messages, max_retries=0, **place(job), **more)


def counts(usage):
    return usage and [usage.prompt_tokens, usage.completion_tokens]


def chat(job):
    answer = ask(job, "Say hello")
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def read(chunks, most=None):
    seen = {"text": "", "pieces": 0, "usage": None}
    for chunk in chunks:
        seen["usage"] = counts(getattr(chunk, "usage", None)) or seen["usage"]
        if chunk.choices and chunk.choices[0].delta.content:
            seen["text"] += chunk.choices[0].delta.content
            seen["pieces"] += 1
        if seen["pieces"] == most:
            break
    return seen


def stream(job):
    return read(ask(job, "Say hello", stream=True, stream_options={"include_usage": True}))


def provider_leaves(job):
    try:
        return {"raised": None, **read(ask(job, stream=True))}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    chunks = ask(job, stream=True)
    seen = read(chunks, READ_BEFORE_LEAVING)
    # Some of its streams have no such method, and are closed with their last reference.
    if hasattr(chunks.completion_stream, "close"):
        chunks.completion_stream.close()
    return seen


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
            call = calls.setdefault(part.index, [part.function.name, ""])
            call[1] += part.function.arguments or ""
    return {"calls": [[name, json.loads(arguments)] for name, arguments in calls.values()]}


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
    answer = litellm.embedding(input=[*TEXTS, job.prompt], max_retries=0, **place(job))
    return {"lengths": [len(item["embedding"]) for item in answer.data]}


def refused(job):
    try:
        ask(job, "Say hello")
    except Exception as error:  # noqa: BLE001
        return {"status": error.status_code, "message": str(error), "kind": type(error).__name__}
    return {"status": 200}


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
