"""What every client asks for: a tool, the schema of a structured answer, and the texts of embeddings."""

QUESTION = "What is the weather in Oslo?"

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "inhabitants": {"type": "integer"},
        "districts": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "inhabitants", "districts"],
    "additionalProperties": False,
}

TEXTS = ["a first text", "another text"]

# How many pieces of a stream are read before the client leaves.
READ_BEFORE_LEAVING = 3
