// What every client asks for: a tool, the schema of a structured answer, and the texts of embeddings.

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

export const TEXTS = ["a first text", "another text"];

// How many pieces of a stream are read before the client leaves.
export const READ_BEFORE_LEAVING = 3;
