"""Judges what a client saw of a scenario."""

from datetime import datetime

from log_check import tokens

TEXT = "This is the mock provider speaking; no model has answered."
WEATHER = {"city": "mock", "days": 1}
CITY = {"name": "mock", "inhabitants": 1, "districts": ["mock"]}
THOUGHTS = "The mock provider thinks."
# The pieces that a client reads before it leaves.
READ_BEFORE_LEAVING = 3

EXPECTED = {
    "chat": {"text": TEXT},
    "stream": {"text": TEXT, "pieces": 10},
    "stream_without_usage": {"text": TEXT, "pieces": 10, "usage": None},
    "provider_leaves": {},
    "client_leaves": {"pieces": READ_BEFORE_LEAVING},
    "tools": {"calls": [["get_weather", WEATHER]], "text": TEXT},
    "parallel_tools": {"calls": [["get_weather", WEATHER]] * 2},
    "structured": {"value": CITY},
    "image_url": {"text": "The mock provider got https://images.example/mock.png."},
    "image_base64": {"text": "The mock provider got image/png of 70 bytes."},
    "audio": {"text": "The mock provider got audio/wav of 48 bytes."},
    "thinking": {"text": TEXT, "thoughts": THOUGHTS},
    "responses": {"text": TEXT},
    "responses_stream": {"text": TEXT, "pieces": 10},
    "responses_image": {"text": "The mock provider got https://images.example/mock.png."},
    "embeddings": {"lengths": [8, 8, 8]},
    "speech": {"bytes": 417},
    "transcription": {"text": TEXT},
    "image": {"bytes": 70},
    "no_money": {"status": 402},
    "rate_limited": {"text": TEXT, "status": 429},
    "provider_fails": {"status": 500},
}

# The code of a refusal, and the beginning of its message, for clients that show no code.
REFUSALS = {
    "no_money": ("insufficient_balance", "The available balance"),
    "rate_limited": ("rate_limit_exceeded", "Too many requests"),
}


def differences(job, result, calls):
    """What differs between what a client saw, what the scenario expects and what the mock reported."""
    scenario, seen = job["scenario"], result["saw"]
    found = [
        f"{name}: the client saw {seen.get(name)!r}, expected {value!r}"
        for name, value in EXPECTED[scenario].items()
        if seen.get(name) != value
    ]
    if scenario == "client_leaves" and result["at"] >= datetime.fromisoformat(calls[0]["at"]).timestamp():
        found.append("the client left after the end of the stream")
    if scenario == "provider_leaves" and not seen["raised"]:
        found.append("the client did not see that the stream was broken off")
    code, message = REFUSALS.get(scenario, (None, None))
    if code and code != seen.get("code") and not any(text in seen.get("message", "") for text in (code, message)):
        found.append(f"the client saw {seen!r}, expected the code {code}")
    # Where a client shows a usage of a whole answer, it is that of the only call.
    is_whole = not scenario.endswith("_leaves")
    if is_whole and seen.get("usage") and len(calls) == 1 and seen["usage"] != tokens(calls[0]["usage"]):
        found.append(f"usage: the client saw {seen['usage']}, the mock reported {calls[0]['usage']}")
    return found
