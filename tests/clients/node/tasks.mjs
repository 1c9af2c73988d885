// What every client asks for: a tool, the schema of a structured answer, the texts of embeddings, images and sound.

export const QUESTION = "What is the weather in Oslo?";

export const WEATHER = {
  name: "get_weather",
  description: "The weather of a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city", "days"],
    additionalProperties: false,
  },
};

export const CITY = {
  type: "object",
  properties: {
    name: { type: "string" },
    inhabitants: { type: "integer" },
    districts: { type: "array", items: { type: "string" } },
  },
  required: ["name", "inhabitants", "districts"],
  additionalProperties: false,
};

export const LOOK = "What is in this image?";
export const LISTEN = "What is said here?";

// Nobody fetches it: the mock provider names it.
export const IMAGE_URL = "https://images.example/mock.png";

// A PNG of one pixel and a WAV of two samples, in base64.
export const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
export const WAV = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQQAAAAAAAAA";

export const TEXTS = ["a first text", "another text"];

// How many pieces of a stream are read before the client leaves.
export const READ_BEFORE_LEAVING = 3;
