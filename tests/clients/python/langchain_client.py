"""The package `langchain-openai`."""

import os

os.environ["LANGSMITH_TRACING"] = "false"

import openai  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402

from tasks import (  # noqa: E402
    CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER,
)

TOOL = {"type": "function", "function": WEATHER}


def connect(job, **more):
    return ChatOpenAI(model=job.model, base_url=job.base_url, api_key=job.api_key, max_retries=0, timeout=30, **more)


def counts(usage):
    return usage and [usage["input_tokens"], usage["output_tokens"]]


def chat(job):
    answer = connect(job).invoke(f"Say hello {job.prompt}")
    return {"text": answer.content, "usage": counts(answer.usage_metadata)}


def read(chunks, most=None):
    seen = {"text": "", "pieces": 0, "usage": None}
    for chunk in chunks:
        seen["usage"] = counts(chunk.usage_metadata) or seen["usage"]
        if chunk.content:
            seen["text"] += chunk.content
            seen["pieces"] += 1
        if seen["pieces"] == most:
            break
    return seen


def stream(job):
    return read(connect(job, stream_usage=True).stream(f"Say hello {job.prompt}"))


def provider_leaves(job):
    try:
        return {"raised": None, **read(connect(job).stream(job.prompt))}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    chunks = connect(job).stream(job.prompt)
    seen = read(chunks, READ_BEFORE_LEAVING)
    chunks.close()
    return seen


def tools(job):
    model = connect(job).bind_tools([TOOL])
    question = HumanMessage(f"{QUESTION} {job.prompt}")
    first = model.invoke([question])
    call = first.tool_calls[0]
    second = model.invoke([question, first, ToolMessage("sunny", tool_call_id=call["id"])])
    return {"calls": [[call["name"], call["args"]]], "text": second.content}


def parallel_tools(job):
    whole = None
    for chunk in connect(job).bind_tools([TOOL]).stream(f"{QUESTION} {job.prompt}"):
        whole = chunk if whole is None else whole + chunk
    return {"calls": [[call["name"], call["args"]] for call in whole.tool_calls]}


def structured(job):
    schema = {"title": "city", "description": "A city.", **CITY}
    model = connect(job).with_structured_output(schema, method="json_schema")
    return {"value": model.invoke(f"Describe Oslo {job.prompt}")}


def ask_about(job, question, part):
    answer = connect(job).invoke([HumanMessage([{"type": "text", "text": f"{question} {job.prompt}"}, part])])
    return {"text": answer.content, "usage": counts(answer.usage_metadata)}


def image_url(job):
    return ask_about(job, LOOK, {"type": "image", "url": IMAGE_URL})


def image_base64(job):
    return ask_about(job, LOOK, {"type": "image", "base64": PNG, "mime_type": "image/png"})


def audio(job):
    return ask_about(job, LISTEN, {"type": "audio", "base64": WAV, "mime_type": "audio/wav"})


def embeddings(job):
    # It would fetch a tokenizer to cut long texts.
    model = OpenAIEmbeddings(
        model=job.model, base_url=job.base_url, api_key=job.api_key, max_retries=0, check_embedding_ctx_length=False
    )
    return {"lengths": [len(vector) for vector in model.embed_documents([*TEXTS, job.prompt])]}


def refused(job):
    try:
        connect(job).invoke(f"Say hello {job.prompt}")
    except openai.APIStatusError as error:
        return {"status": error.status_code, "code": error.code, "kind": type(error).__name__}
    return {"status": 200}


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
