"""The package `google-genai`."""

import base64
import json

from google import genai
from google.genai import errors, types

from tasks import CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER

TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name=WEATHER["name"],
            description=WEATHER["description"],
            parameters_json_schema=WEATHER["parameters"],
        )
    ]
)


def connect(job):
    return genai.Client(api_key=job.api_key, http_options=types.HttpOptions(base_url=job.base_url, timeout=30_000))


def ask(job, text="", contents=None, **config):
    contents = contents or f"{text} {job.prompt}"
    client = connect(job)
    return client.models.generate_content(model=job.model, contents=contents, config=config)


def ask_for_parts(client, job, text="", **config):
    return client.models.generate_content_stream(model=job.model, contents=f"{text} {job.prompt}", config=config)


def counts(usage):
    return usage and [usage.prompt_token_count, (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)]


def chat(job):
    answer = ask(job, "Say hello")
    return {"text": answer.text, "usage": counts(answer.usage_metadata)}


def read(parts, most=None):
    seen = {"text": "", "pieces": 0, "usage": None}
    for part in parts:
        seen["usage"] = counts(part.usage_metadata) or seen["usage"]
        if part.text:
            seen["text"] += part.text
            seen["pieces"] += 1
        if seen["pieces"] == most:
            break
    return seen


def stream(job):
    client = connect(job)
    return read(ask_for_parts(client, job, "Say hello"))


def thinking(job):
    answer = ask(job, "Say hello", thinking_config=types.ThinkingConfig(include_thoughts=True))
    thoughts = "".join(part.text for part in answer.candidates[0].content.parts if part.thought)
    return {"text": answer.text, "thoughts": thoughts, "usage": counts(answer.usage_metadata)}


def provider_leaves(job):
    client = connect(job)
    try:
        return {"raised": None, **read(ask_for_parts(client, job))}
    except Exception as error:  # noqa: BLE001
        return {"raised": type(error).__name__}


def client_leaves(job):
    client = connect(job)
    parts = ask_for_parts(client, job)
    seen = read(parts, READ_BEFORE_LEAVING)
    parts.close()
    client.close()
    return seen


def tools(job):
    config = {"tools": [TOOL], "automatic_function_calling": {"disable": True}}
    question = types.Content(role="user", parts=[types.Part(text=f"{QUESTION} {job.prompt}")])
    first = ask(job, contents=[question], **config)
    call = first.function_calls[0]
    result = types.Part.from_function_response(name=call.name, response={"weather": "sunny"})
    said = [question, first.candidates[0].content, types.Content(role="user", parts=[result])]
    return {"calls": [[call.name, call.args]], "text": ask(job, contents=said, **config).text}


def parallel_tools(job):
    client = connect(job)
    parts = ask_for_parts(client, job, QUESTION, tools=[TOOL], automatic_function_calling={"disable": True})
    calls = [call for part in parts for call in part.function_calls or []]
    return {"calls": [[call.name, call.args] for call in calls]}


def structured(job):
    answer = ask(job, "Describe Oslo", response_mime_type="application/json", response_json_schema=CITY)
    return {"value": json.loads(answer.text)}


def embeddings(job):
    # It is closed once nothing holds it.
    client = connect(job)
    answer = client.models.embed_content(model=job.model, contents=[*TEXTS, job.prompt])
    return {"lengths": [len(item.values) for item in answer.embeddings]}


def ask_about(job, question, part):
    answer = ask(job, contents=[types.Part(text=f"{question} {job.prompt}"), part])
    return {"text": answer.text, "usage": counts(answer.usage_metadata)}


def image_url(job):
    return ask_about(job, LOOK, types.Part.from_uri(file_uri=IMAGE_URL, mime_type="image/png"))


def image_base64(job):
    return ask_about(job, LOOK, types.Part.from_bytes(data=base64.b64decode(PNG), mime_type="image/png"))


def audio(job):
    return ask_about(job, LISTEN, types.Part.from_bytes(data=base64.b64decode(WAV), mime_type="audio/wav"))


def refused(job):
    try:
        ask(job, "Say hello")
    except errors.APIError as error:
        return {"status": error.code, "code": code_of(error.details), "kind": type(error).__name__}
    return {"status": 200}


def code_of(body):
    return body.get("error", {}).get("code") if isinstance(body, dict) else None


no_money = provider_fails = refused


def rate_limited(job):
    return {"text": chat(job)["text"], **refused(job)}
