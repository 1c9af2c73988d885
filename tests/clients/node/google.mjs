// The package `@google/genai`.

import { createPartFromBase64, createPartFromUri, GoogleGenAI } from "@google/genai";
import { CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER } from "./tasks.mjs";

const { parameters, ...described } = WEATHER;
const TOOLS = [{ functionDeclarations: [{ ...described, parametersJsonSchema: parameters }] }];

const connect = (job) =>
  new GoogleGenAI({ apiKey: job.api_key, httpOptions: { baseUrl: job.base_url, timeout: 30_000 } });

const wish = (job, text, config, contents) => ({
  model: job.model,
  contents: contents ?? `${text} ${job.prompt}`,
  config,
});

const ask = (job, text, config, contents) =>
  connect(job).models.generateContent(wish(job, text, config, contents));
const begin = (job, text, config) => connect(job).models.generateContentStream(wish(job, text, config));
const counts = (usage) =>
  usage && [usage.promptTokenCount, (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0)];

export async function chat(job) {
  const answer = await ask(job, "Say hello");
  return { text: answer.text, usage: counts(answer.usageMetadata) };
}

async function read(parts, most) {
  const seen = { text: "", pieces: 0, usage: null };
  for await (const part of parts) {
    seen.usage = counts(part.usageMetadata) ?? seen.usage;
    if (part.text) {
      seen.text += part.text;
      seen.pieces += 1;
    }
    if (seen.pieces === most) break;
  }
  return seen;
}

export const stream = async (job) => read(await begin(job, "Say hello"));

export async function thinking(job) {
  const answer = await ask(job, "Say hello", { thinkingConfig: { includeThoughts: true } });
  const thoughts = answer.candidates[0].content.parts.filter((part) => part.thought);
  return {
    text: answer.text,
    thoughts: thoughts.map((part) => part.text).join(""),
    usage: counts(answer.usageMetadata),
  };
}

export async function provider_leaves(job) {
  try {
    return { raised: null, ...(await read(await begin(job, ""))) };
  } catch (error) {
    return { raised: error.name };
  }
}

export async function client_leaves(job) {
  const leaving = new AbortController();
  const seen = await read(await begin(job, "", { abortSignal: leaving.signal }), READ_BEFORE_LEAVING);
  leaving.abort();
  return seen;
}

export async function tools(job) {
  const question = { role: "user", parts: [{ text: `${QUESTION} ${job.prompt}` }] };
  const first = await ask(job, "", { tools: TOOLS }, [question]);
  const call = first.functionCalls[0];
  const result = { functionResponse: { name: call.name, response: { weather: "sunny" } } };
  const contents = [question, first.candidates[0].content, { role: "user", parts: [result] }];
  return { calls: [[call.name, call.args]], text: (await ask(job, "", { tools: TOOLS }, contents)).text };
}

export async function parallel_tools(job) {
  const calls = [];
  for await (const part of await begin(job, QUESTION, { tools: TOOLS })) calls.push(...(part.functionCalls ?? []));
  return { calls: calls.map((call) => [call.name, call.args]) };
}

export async function structured(job) {
  const config = { responseMimeType: "application/json", responseJsonSchema: CITY };
  return { value: JSON.parse((await ask(job, "Describe Oslo", config)).text) };
}

async function askAbout(job, question, part) {
  const contents = [{ role: "user", parts: [{ text: `${question} ${job.prompt}` }, part] }];
  const answer = await ask(job, "", {}, contents);
  return { text: answer.text, usage: counts(answer.usageMetadata) };
}

export const image_url = (job) => askAbout(job, LOOK, createPartFromUri(IMAGE_URL, "image/png"));
export const image_base64 = (job) => askAbout(job, LOOK, createPartFromBase64(PNG, "image/png"));
export const audio = (job) => askAbout(job, LISTEN, createPartFromBase64(WAV, "audio/wav"));

export async function embeddings(job) {
  const answer = await connect(job).models.embedContent({ model: job.model, contents: [...TEXTS, job.prompt] });
  return { lengths: answer.embeddings.map((item) => item.values.length) };
}

async function refused(job) {
  try {
    await ask(job, "Say hello");
    return { status: 200 };
  } catch (error) {
    return { status: error.status, message: error.message, kind: error.constructor.name };
  }
}

export const no_money = refused;
export const provider_fails = refused;
export const rate_limited = async (job) => ({ text: (await chat(job)).text, ...(await refused(job)) });
