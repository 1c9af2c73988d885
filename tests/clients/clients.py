"""The clients, the routes by which they reach a provider, and what each of them is asked to do.

A scenario is written once per client, in `python/<module>.py` or `node/<module>.mjs`. It gets its route as a base URL."""

import dataclasses

# The routes and their titles; `WRITE_TABLE=1 tests/clients/run` adds the table of a new one. What is converted reaches a provider of another format than the client's.
ROUTE_TITLES = {
    "forward": "By forward",
    "model": "By the model endpoints",
    "model_converted": "By the model endpoints, converted",
    "model_google": "By the model endpoints, converted for Google",
    "rewrite": "By rewrite, to a provider of the same format",
    "rewrite_chat": "By rewrite, converted for OpenAI's Chat Completions",
    "rewrite_responses": "By rewrite, converted for OpenAI's Responses",
    "rewrite_anthropic": "By rewrite, converted for Anthropic",
    "rewrite_google": "By rewrite, converted for Google",
}
ROUTES = list(ROUTE_TITLES)

# The format of the provider on each route of a converted rewrite.
REWRITES = {
    "rewrite_chat": "chat", "rewrite_responses": "responses", "rewrite_anthropic": "anthropic", "rewrite_google": "google",
}

# What each scenario adds to its prompt, for the mock provider.
SCENARIOS = {
    "chat": "",
    "stream": "",
    "stream_without_usage": "",
    "provider_leaves": "mock:words=60 mock:break-after=9 mock:interval-ms=1",
    "client_leaves": "mock:words=100 mock:interval-ms=60",
    "tools": "",
    "parallel_tools": "mock:calls=2",
    "structured": "",
    "image_url": "mock:describe=media",
    "image_base64": "mock:describe=media",
    "audio": "mock:describe=media",
    "thinking": "",
    "responses": "",
    "responses_stream": "",
    "responses_image": "mock:describe=media",
    "embeddings": "",
    "speech": "",
    "transcription": "",
    "image": "",
    "no_money": "",
    "rate_limited": "",
    "provider_fails": "mock:status=500",
}

# The columns of the tables in docs/clients.md.
TITLES = {
    "chat": "chat",
    "stream": "stream",
    "stream_without_usage": "stream, no usage asked",
    "provider_leaves": "provider breaks off",
    "client_leaves": "client breaks off",
    "tools": "tools",
    "parallel_tools": "parallel tools, streamed",
    "structured": "structured output",
    "image_url": "image by URL",
    "image_base64": "image in base64",
    "audio": "sound",
    "thinking": "thinking",
    "responses": "Responses",
    "responses_stream": "Responses, streamed",
    "responses_image": "Responses, image",
    "embeddings": "embeddings",
    "speech": "speech",
    "transcription": "transcription",
    "image": "images",
    "no_money": "402",
    "rate_limited": "429",
    "provider_fails": "500",
}

CHAT = [
    "chat", "stream", "provider_leaves", "client_leaves", "tools", "parallel_tools", "structured", "image_url",
    "image_base64",
]
NOT_LITELLM_BEDROCK = ("image_url", "tools", "parallel_tools", "provider_fails")
REFUSALS = ["no_money", "rate_limited", "provider_fails"]
OPENAI = [
    *CHAT, "stream_without_usage", "audio", "responses", "responses_stream", "responses_image", "embeddings", "speech",
    "transcription", "image", *REFUSALS,
]

# What is called on the caller's own key, with the model of each and the tier type of its meter.
OWN_KEY = {
    "speech": ("mock-speech", "characters_1m"),
    "transcription": ("mock-transcription", "minutes"),
    "image": ("mock-openai", "tokens_1m"),
}


# The routes without an endpoint in Google's format.
MODEL_ENDPOINTS = ("model", "model_converted", "model_google")

# Those of a client whose requests only its own provider reads.
NOT_FORWARD = tuple(route for route in ROUTES if route != "forward")


@dataclasses.dataclass(frozen=True)
class Client:
    """A client and the format that it speaks."""

    name: str
    # The worker: `python/<module>.py` in this environment, or `node/<module>.mjs`.
    environment: str
    module: str
    # The format of its requests: openai, anthropic or google; or one that only forward takes, that of its provider.
    format: str
    scenarios: list
    # What its base URL ends in, behind the provider's address: it appends the rest itself.
    base: str = ""
    # The routes that its way of building URLs cannot take.
    cannot: tuple = ()
    # The provider that it is made for, if that is not the one of its format.
    provider: str = ""
    # Whether forward gets the provider's URL in its path: the client puts its own path before the query of a base URL.
    url_in_path: bool = False


CLIENTS = [
    Client("openai (Python)", "python", "openai_client", "openai", OPENAI, "/v1/"),
    # It appends the deployment, which only Azure has in its URLs.
    Client(
        "openai (Python), AzureOpenAI", "python", "azure_client", "openai",
        [*CHAT, "stream_without_usage", "audio", "embeddings", *REFUSALS], "/openai/",
        cannot=NOT_FORWARD, provider="azure",
    ),
    Client("openai (npm)", "node", "openai", "openai", OPENAI, "/v1"),
    Client("anthropic (Python)", "python", "anthropic_client", "anthropic", [*CHAT, "thinking", *REFUSALS]),
    Client("@anthropic-ai/sdk (npm)", "node", "anthropic", "anthropic", [*CHAT, "thinking", *REFUSALS]),
    Client(
        "google-genai (Python)", "python", "google_client", "google",
        [*CHAT, "audio", "thinking", "embeddings", *REFUSALS], cannot=MODEL_ENDPOINTS, url_in_path=True,
    ),
    Client(
        "@google/genai (npm)", "node", "google", "google",
        [*CHAT, "audio", "thinking", "embeddings", *REFUSALS], cannot=MODEL_ENDPOINTS,
    ),
    Client(
        "cohere (Python)", "frameworks", "cohere_client", "cohere", [*CHAT, "thinking", "embeddings", *REFUSALS],
        cannot=NOT_FORWARD, provider="cohere",
    ),
    Client("litellm, openai/…", "frameworks", "litellm_client", "openai", [*CHAT, "audio", "embeddings", *REFUSALS], "/v1/"),
    Client("litellm, anthropic/…", "frameworks", "litellm_client", "anthropic", [*CHAT, *REFUSALS]),
    # Its base URL is a host alone; it appends the model and the operation. It fetches images itself, sends tools to Bedrock
    # only for a model that it knows, and shows a 500 of Bedrock as 503.
    Client(
        "litellm, bedrock/converse/…", "frameworks", "litellm_client", "bedrock",
        [scenario for scenario in [*CHAT, *REFUSALS] if scenario not in NOT_LITELLM_BEDROCK],
        cannot=NOT_FORWARD, provider="bedrock",
    ),
    # It fetches images itself.
    Client(
        "litellm, gemini/…", "frameworks", "litellm_client", "google",
        [scenario for scenario in [*CHAT, "audio", *REFUSALS] if scenario != "image_url"], cannot=MODEL_ENDPOINTS,
    ),
    Client("langchain-openai", "frameworks", "langchain_client", "openai", [*CHAT, "audio", "embeddings", *REFUSALS], "/v1/"),
    Client("ai with @ai-sdk/openai-compatible", "node", "ai_sdk", "openai", [*CHAT, "audio", "embeddings", *REFUSALS], "/v1"),
]

# The routes that reach the provider of the client's own format; the others reach one of another format.
UNCONVERTED = ("forward", "model", "rewrite")

# The provider of another format, at the model endpoints.
CONVERTED = {"openai": "anthropic", "anthropic": "openai"}

# The provider of each format and its whole endpoint, for converted rewrites: a client appends its own path, which is cut off.
ENDPOINTS = {
    "chat": ("openai", "/v1/chat/completions"),
    "responses": ("openai", "/v1/responses"),
    "anthropic": ("anthropic", "/v1/messages"),
    "google": ("google", "/v1beta/models/mock-google:generateContent"),
}

# litellm sends a schema to Google only for a model that it knows.
LITELLMS_GEMINI = "gemini-2.5-flash"

# Every model of the run, by its provider.
MODELS = {(provider, f"mock-{provider}") for provider in ("openai", "anthropic", "google")} | {("google", LITELLMS_GEMINI)}

# The providers that real clients reach at their own formats, beside the three that the mock's addresses stand for: those
# of docs/providers.md whose keys need no host or format of their own. Each has a relay to the mock (relays.py).
OTHERS = [
    "deepseek", "mistral", "xai", "groq", "together", "fireworks", "cerebras", "perplexity", "openrouter", "deepinfra",
    "nebius", "sambanova", "hyperbolic", "moonshot", "zai", "dashscope", "nvidia", "github", "huggingface", "vercel",
]

# All that have a relay. The last have clients of their own.
RELAYED = [*OTHERS, "azure", "cohere", "bedrock"]

# Those of their endpoints that real clients call, by forward, with the format and the scenarios of each.
ENDPOINTS_OF_OTHERS = {
    "chat": ("openai", ["chat", "stream"]),
    "responses": ("openai", ["responses", "responses_stream"]),
    "messages": ("anthropic", ["chat", "stream"]),
    "embeddings": ("openai", ["embeddings"]),
}

# The clients that call them: those of the formats' own makers.
CLIENTS_OF_OTHERS = ("openai (Python)", "openai (npm)", "anthropic (Python)", "@anthropic-ai/sdk (npm)")

# The route of these calls. It is forward, with a provider for each.
TO_OTHERS = "other providers"

MODELS |= {(provider, f"mock-{provider}") for provider in RELAYED}

# What is not converted: vectors and sound have no counterpart everywhere, and OpenAI's completions show no thoughts.
# Only forward takes sound and images to be made.
ONLY_UNCONVERTED = {"embeddings", "thinking", "audio"}


def provider_of(client, route):
    """The provider that answers."""
    if client.provider:
        return client.provider
    if route == "model_google":
        return "google"
    if route in REWRITES:
        return ENDPOINTS[REWRITES[route]][0]
    return client.format if route in UNCONVERTED else CONVERTED[client.format]


def base_url(client, route, gateway, mock, provider):
    """The base URL that the client is given. `mock` has the mock's addresses by provider."""
    if route == "forward" and client.url_in_path:
        return f"{gateway}/v1/forward/{mock[provider]}{client.base}"
    if route in ("forward", TO_OTHERS):
        return f"{gateway}/v1/forward?u={mock[provider]}{client.base}{model_path(client)}"
    if route == "rewrite":
        return f"{gateway}/v1/rewrite/{client.format}/{mock[provider]}{client.base}{model_path(client)}"
    if route in REWRITES:
        return f"{gateway}/v1/rewrite/{client.format}/{mock[provider]}{ENDPOINTS[REWRITES[route]][1]}"
    # The model endpoints. Anthropic's clients append the version themselves.
    return gateway if client.format == "anthropic" else f"{gateway}/v1"


def model_path(client):
    """litellm takes the model's path at Google as the base, and appends the method alone."""
    is_gemini = client.module == "litellm_client" and client.format == "google"
    return f"/v1beta/models/{LITELLMS_GEMINI}" if is_gemini else ""


def model_of(client, provider, scenario):
    """The model, which also chooses the provider where no URL does."""
    if scenario in OWN_KEY:
        return OWN_KEY[scenario][0]
    is_gemini = client.module == "litellm_client" and client.format == "google" and provider == "google"
    return LITELLMS_GEMINI if is_gemini else f"mock-{provider}"


def calls_of_others(documented):
    """Provider, endpoint, client and scenario of each call to another provider. `documented` has its endpoints in the
    documents, by provider."""
    return [
        (provider, endpoint, client, scenario)
        for provider in OTHERS
        for endpoint, (spoken, scenarios) in ENDPOINTS_OF_OTHERS.items()
        if endpoint in documented[provider]
        for client in CLIENTS
        if client.name in CLIENTS_OF_OTHERS and client.format == spoken
        for scenario in scenarios
    ]


# The endpoints of the table that names the providers of each client.
ENDPOINTS_OF_SCENARIOS = [
    "chat", "responses", "messages", "generateContent", "embeddings", "speech", "transcription", "images",
]


def endpoint_of(client, scenario):
    """The endpoint that a scenario calls, in the client's format. None of a refusal, which proves no endpoint."""
    if scenario in REFUSALS:
        return None
    if scenario.startswith("responses"):
        return "responses"
    if scenario in ("embeddings", "speech", "transcription"):
        return scenario
    if scenario == "image":
        return "images"
    return {"anthropic": "messages", "google": "generateContent"}.get(client.format, "chat")


def scenarios_of(client, route):
    """What the client is asked to do on a route."""
    if route in client.cannot:
        return []
    left_out = set() if route in UNCONVERTED else ONLY_UNCONVERTED
    left_out = left_out if route == "forward" else left_out | set(OWN_KEY)
    # It sends no schema for a model that it does not know as Google's.
    left_out = left_out | {"structured"} if model_path(client) and route in REWRITES else left_out
    wanted = [scenario for scenario in SCENARIOS if scenario in client.scenarios and scenario not in left_out]
    # What the provider speaks itself is not converted: that is the route `rewrite`.
    return [scenario for scenario in wanted if format_of(client, scenario) != REWRITES.get(route)]


def format_of(client, scenario):
    """The format of a scenario's requests, as `REWRITES` names it."""
    if client.format != "openai":
        return client.format
    return "responses" if scenario.startswith("responses") else "chat"
