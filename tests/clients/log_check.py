"""Compares the requests in the log with the journal of the mock provider. The sums are made here a second time, from
what the mock says that it reported and from the prices of the run."""

from decimal import ROUND_HALF_UP, Decimal

from clients import ENDPOINTS, MODELS, OWN_KEY, RELAYED, REWRITES
from instance import FEES, FUNDS

# Dollars per million tokens, of input and of output.
PRICES = {
    "openai": ("2.3456789012", "9.8765432109"),
    "anthropic": ("3.1415926535", "15.2718281828"),
    "google": ("0.1234567891", "0.4142135623"),
    **{provider: (f"1.{number:02}01234567", f"5.{number:02}12345678") for number, provider in enumerate(RELAYED)},
}

# Dollars per character that is spoken, and per second that is heard.
PER_CHARACTER = "0.0000123457"
PER_SECOND = "0.0001234568"

# Calls whose answers have no id, beside Bedrock's.
WITHOUT_ID = {"embeddings", *OWN_KEY}

SERVICE_CHARGE = Decimal("0.019")
MILLION = Decimal(1_000_000)


def price_file():
    """The prices, in the form of a price catalogue."""
    models = [
        {
            "provider": provider, "model": model, "input_per_1m": PRICES[provider][0],
            "output_per_1m": PRICES[provider][1], "max_output_tokens": 32_000, "max_input_tokens": 200_000,
        }
        for provider, model in sorted(MODELS)
    ]
    models += [
        {"provider": "openai", "model": OWN_KEY["speech"][0], "per_character": PER_CHARACTER},
        {"provider": "openai", "model": OWN_KEY["transcription"][0], "per_second": PER_SECOND},
    ]
    return {"source": "the tests of clients", "licence": "our own", "taken": "2026-11-23", "models": models}


def tokens(usage):
    """Input and output tokens of a usage in any provider's shape. Thoughts are output."""
    if "promptTokenCount" in usage:
        output = usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
        return [usage["promptTokenCount"], output]
    if "inputTokens" in usage:
        return [usage["inputTokens"], usage["outputTokens"]]
    # Cohere reports more tokens than it bills.
    usage = usage.get("billed_units", usage)
    given = usage.get("prompt_tokens", usage.get("input_tokens", 0))
    return [given, usage.get("completion_tokens", usage.get("output_tokens", 0))]


def rounded(amount):
    return amount.quantize(Decimal("0.0000000001"), ROUND_HALF_UP)


def units(job, reported):
    """Tokens of input and output, characters and seconds of a call that did not fail."""
    if job["scenario"] == "speech":
        # Its answer reports nothing: it is metered by its text.
        return {"tokens": [0, 0], "characters": len(f"Say hello {job['prompt']}"), "seconds": 0}
    if job["scenario"] == "transcription":
        return {"tokens": [0, 0], "characters": 0, "seconds": reported["seconds"]}
    return {"tokens": tokens(reported), "characters": 0, "seconds": 0}


def charge(job, counts):
    """The lines of a charge and their sum. A cost on the caller's own key is shown, and charged to nobody."""
    rates = PRICES[job["provider"]]
    cost = [rounded(count * Decimal(rate) / MILLION) for count, rate in zip(counts["tokens"], rates)]
    others = counts["characters"] * Decimal(PER_CHARACTER) + counts["seconds"] * Decimal(PER_SECOND)
    units_of_fee = {
        "tokens_1m": sum(counts["tokens"]) / MILLION,
        "characters_1m": counts["characters"] / MILLION,
        "minutes": counts["seconds"] / Decimal(60),
    }
    _, tier_type = OWN_KEY.get(job["scenario"], (None, "tokens_1m"))
    fee = rounded(units_of_fee[tier_type] * Decimal(FEES[tier_type])) if job["has_meter"] else Decimal(0)
    service = rounded(fee * SERVICE_CHARGE)
    charged = Decimal(0) if job["scenario"] in OWN_KEY else sum(cost)
    return {
        "input_cost": cost[0] + rounded(others), "output_cost": cost[1], "fee": fee, "service": service,
        "total": charged + fee + service,
    }


def differences(job, calls, requests, balance):
    """What differs between the mock's calls of a job, the log and the wallet."""
    found = []

    def equal(what, shown, expected):
        if shown != expected:
            found.append(f"{what}: the log has {shown}, expected {expected}")

    equal("number of requests", len(requests), len(calls))
    if job["route"] in REWRITES:
        # Where a call arrived shows that it was converted, and to which format.
        _, path = ENDPOINTS[REWRITES[job["route"]]]
        for call in calls:
            equal("the provider's endpoint", whole_method(call["target"]), path)
    spent = Decimal(0)
    for call, request in zip(calls, requests):
        spent += compare(job, call, request, equal)
    if balance is not None:
        equal("balance of the wallet", Decimal(balance), Decimal(FUNDS) - spent)
    return found


def whole_method(target):
    """The path of a target, with Google's method for a whole answer in place of that for a stream."""
    return target.partition("?")[0].replace(":streamGenerateContent", ":generateContent")


def compare(job, call, request, equal):
    """Compares one call, and returns what it costs."""
    usage, reported = call.get("usage"), call.get("reported")
    failed = call["status"] >= 400 or (reported is None and job["scenario"] != "speech")
    equal("provider", request["provider"], job["provider"])
    equal("type of the key", request["provider_key_type"], "unmanaged" if job["scenario"] in OWN_KEY else "managed")
    equal("status", request["status"], "error" if failed else "completed")
    equal("status of the provider", request.get("http_status", 200), call["status"])
    is_partial = not call["finished"] and not failed
    equal("marks", request.get("marks", []), ["partial"] if is_partial else [])
    equal("reason of the failure", request.get("failure_reason"), reason(call) if failed else None)
    if job["scenario"] not in WITHOUT_ID and job["provider"] != "bedrock" and call["status"] < 400:
        equal("id of the response", str(request.get("response_id")).endswith(call["id"]), True)
    if call["finished"] and not failed:
        equal("usage that was sent", reported, usage)
    counts = {"tokens": [0, 0], "characters": 0, "seconds": 0} if failed else units(job, reported)
    expected = charge(job, counts)
    metered = request["model_usage"]
    equal("tokens", [metered["input_tokens"], metered["output_tokens"]], counts["tokens"])
    equal("characters", [metered["input_characters"], metered["output_characters"]], [counts["characters"], 0])
    equal("seconds", [metered["input_seconds"], metered["output_seconds"]], [counts["seconds"], 0])
    shown = {
        "input_cost": metered["input_cost"],
        "output_cost": metered["output_cost"],
        "fee": request["fee"]["amount"],
        "service": request["service_charge"]["amount"],
        "total": request["total_request_cost"],
    }
    for name, amount in expected.items():
        equal(name, Decimal(shown[name]), amount)
    equal("charge of the wallet", Decimal(request["total_wallet_cost"]), expected["total"])
    return expected["total"]


def reason(call):
    """Why a call has failed: by its status, or it broke off and had reported nothing."""
    return "provider_status" if call["status"] >= 400 else "provider_gone"
