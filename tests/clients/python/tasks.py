"""What every client asks for: a tool, the schema of a structured answer, the texts of embeddings, images and sound."""

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

LOOK = "What is in this image?"
LISTEN = "What is said here?"

# Nobody fetches it: the mock provider names it.
IMAGE_URL = "https://images.example/mock.png"

# A PNG of one pixel and a WAV of two samples, in base64.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WAV = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQQAAAAAAAAA"

TEXTS = ["a first text", "another text"]

# How many pieces of a stream are read before the client leaves.
READ_BEFORE_LEAVING = 3
