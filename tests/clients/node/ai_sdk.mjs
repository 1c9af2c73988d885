// The package `ai` with `@ai-sdk/openai-compatible`.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER } from "./tasks.mjs";

const provider = (job) =>
  createOpenAICompatible({
    name: "farthing",
    baseURL: job.base_url,
    apiKey: job.api_key,
    includeUsage: true,
    supportsStructuredOutputs: true,
    // Without it, the package fetches images itself.
    supportedUrls: () => ({ "image/*": [/^https:/] }),
  });

const wish = (job, text, more) => ({
  model: provider(job)(job.model),
  prompt: `${text} ${job.prompt}`,
  maxRetries: 0,
  ...more,
});

const weather = (execute) => ({
  [WEATHER.name]: tool({
    description: WEATHER.description,
    inputSchema: jsonSchema(WEATHER.parameters),
    ...(execute && { execute }),
  }),
});

const counts = (usage) => [usage.inputTokens, usage.outputTokens];

export async function chat(job) {
  const answer = await generateText(wish(job, "Say hello"));
  return { text: answer.text, usage: counts(answer.usage) };
}

async function read(answer, most) {
  const seen = { text: "", pieces: 0, raised: null };
  for await (const part of answer.fullStream) {
    if (part.type === "text-delta") {
      seen.text += part.text;
      seen.pieces += 1;
    }
    if (part.type === "error") seen.raised = part.error.name;
    if (seen.pieces === most) break;
  }
  return seen;
}

export async function stream(job) {
  const answer = streamText(wish(job, "Say hello"));
  const { raised, ...seen } = await read(answer);
  if (raised) throw new Error(raised);
  return { ...seen, usage: counts(await answer.usage) };
}

export async function provider_leaves(job) {
  try {
    return await read(streamText(wish(job, "", { onError: () => {} })));
  } catch (error) {
    return { raised: error.name };
  }
}

export async function client_leaves(job) {
  const leaving = new AbortController();
  const seen = await read(streamText(wish(job, "", { abortSignal: leaving.signal })), READ_BEFORE_LEAVING);
  leaving.abort();
  return seen;
}

export async function tools(job) {
  const more = { tools: weather(() => "sunny"), stopWhen: stepCountIs(2) };
  const answer = await generateText(wish(job, QUESTION, more));
  const calls = answer.steps.flatMap((step) => step.toolCalls);
  return { calls: calls.map((call) => [call.toolName, call.input]), text: answer.text };
}

export async function parallel_tools(job) {
  const answer = streamText(wish(job, QUESTION, { tools: weather() }));
  await answer.consumeStream();
  return { calls: (await answer.toolCalls).map((call) => [call.toolName, call.input]) };
}

export async function structured(job) {
  const answer = await generateObject(wish(job, "Describe Oslo", { schema: jsonSchema(CITY), schemaName: "city" }));
  return { value: answer.object };
}

async function askAbout(job, question, part) {
  const messages = [{ role: "user", content: [{ type: "text", text: `${question} ${job.prompt}` }, part] }];
  const answer = await generateText(wish(job, "", { prompt: undefined, messages }));
  return { text: answer.text, usage: counts(answer.usage) };
}

export const image_url = (job) => askAbout(job, LOOK, { type: "image", image: new URL(IMAGE_URL) });
export const image_base64 = (job) => askAbout(job, LOOK, { type: "image", image: PNG, mediaType: "image/png" });
export const audio = (job) => askAbout(job, LISTEN, { type: "file", data: WAV, mediaType: "audio/wav" });

export async function embeddings(job) {
  const model = provider(job).textEmbeddingModel(job.model);
  const answer = await embedMany({ model, values: [...TEXTS, job.prompt], maxRetries: 0 });
  return { lengths: answer.embeddings.map((vector) => vector.length) };
}

async function refused(job) {
  try {
    await generateText(wish(job, "Say hello"));
    return { status: 200 };
  } catch (error) {
    const code = JSON.parse(error.responseBody ?? "{}").error?.code;
    return { status: error.statusCode, code, kind: error.constructor.name };
  }
}

export const no_money = refused;
export const provider_fails = refused;
export const rate_limited = async (job) => ({ text: (await chat(job)).text, ...(await refused(job)) });
