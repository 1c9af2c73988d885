// The package `openai`.

import OpenAI, { toFile } from "openai";
import { CITY, IMAGE_URL, LISTEN, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, TEXTS, WAV, WEATHER } from "./tasks.mjs";

const TOOL = { type: "function", function: WEATHER };

// No retries, so that each scenario makes as many calls as it says.
const connect = (job) =>
  new OpenAI({ baseURL: job.base_url, apiKey: job.api_key, maxRetries: 0, timeout: 30_000 });

function ask(job, text, more = {}) {
  const messages = [{ role: "user", content: `${text} ${job.prompt}` }];
  return connect(job).chat.completions.create({ model: job.model, messages, ...more });
}

const counts = (usage) => usage && [usage.prompt_tokens, usage.completion_tokens];

export async function chat(job) {
  const answer = await ask(job, "Say hello");
  return { text: answer.choices[0].message.content, usage: counts(answer.usage) };
}

async function read(chunks, most) {
  const seen = { text: "", pieces: 0, usage: null };
  for await (const chunk of chunks) {
    seen.usage = counts(chunk.usage) ?? seen.usage;
    const piece = chunk.choices[0]?.delta.content;
    if (piece) {
      seen.text += piece;
      seen.pieces += 1;
    }
    if (seen.pieces === most) break;
  }
  return seen;
}

export const stream = async (job) =>
  read(await ask(job, "Say hello", { stream: true, stream_options: { include_usage: true } }));

export const stream_without_usage = async (job) => read(await ask(job, "Say hello", { stream: true }));

export async function provider_leaves(job) {
  try {
    return { raised: null, ...(await read(await ask(job, "", { stream: true }))) };
  } catch (error) {
    return { raised: error.name };
  }
}

export const client_leaves = async (job) => read(await ask(job, "", { stream: true }), READ_BEFORE_LEAVING);

export async function tools(job) {
  const question = { role: "user", content: `${QUESTION} ${job.prompt}` };
  const first = (await ask(job, "", { messages: [question], tools: [TOOL] })).choices[0].message;
  const call = first.tool_calls[0];
  const result = { role: "tool", tool_call_id: call.id, content: "sunny" };
  const second = await ask(job, "", { messages: [question, first, result], tools: [TOOL] });
  const args = JSON.parse(call.function.arguments);
  return { calls: [[call.function.name, args]], text: second.choices[0].message.content };
}

export async function parallel_tools(job) {
  const calls = [];
  for await (const chunk of await ask(job, QUESTION, { stream: true, tools: [TOOL] })) {
    for (const part of chunk.choices[0]?.delta.tool_calls ?? []) {
      calls[part.index] ??= [part.function.name, ""];
      calls[part.index][1] += part.function.arguments ?? "";
    }
  }
  return { calls: calls.map(([name, text]) => [name, JSON.parse(text)]) };
}

export async function structured(job) {
  const schema = { name: "city", schema: CITY, strict: true };
  const answer = await ask(job, "Describe Oslo", { response_format: { type: "json_schema", json_schema: schema } });
  return { value: JSON.parse(answer.choices[0].message.content) };
}

async function askAbout(job, question, part) {
  const content = [{ type: "text", text: `${question} ${job.prompt}` }, part];
  const answer = await ask(job, "", { messages: [{ role: "user", content }] });
  return { text: answer.choices[0].message.content, usage: counts(answer.usage) };
}

export const image_url = (job) => askAbout(job, LOOK, { type: "image_url", image_url: { url: IMAGE_URL } });
export const image_base64 = (job) =>
  askAbout(job, LOOK, { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } });
export const audio = (job) =>
  askAbout(job, LISTEN, { type: "input_audio", input_audio: { data: WAV, format: "wav" } });

export async function embeddings(job) {
  const answer = await connect(job).embeddings.create({ model: job.model, input: [...TEXTS, job.prompt] });
  return { lengths: answer.data.map((item) => item.embedding.length) };
}

const responseCounts = (usage) => [usage.input_tokens, usage.output_tokens];

export async function responses(job) {
  const answer = await connect(job).responses.create({ model: job.model, input: `Say hello ${job.prompt}` });
  return { text: answer.output_text, usage: responseCounts(answer.usage) };
}

export async function responses_stream(job) {
  const seen = { text: "", pieces: 0, usage: null };
  const wish = { model: job.model, input: `Say hello ${job.prompt}`, stream: true };
  for await (const event of await connect(job).responses.create(wish)) {
    if (event.type === "response.output_text.delta") {
      seen.text += event.delta;
      seen.pieces += 1;
    }
    if (event.type === "response.completed") seen.usage = responseCounts(event.response.usage);
  }
  return seen;
}

export async function responses_image(job) {
  const content = [
    { type: "input_text", text: `${LOOK} ${job.prompt}` },
    { type: "input_image", image_url: IMAGE_URL, detail: "auto" },
  ];
  const answer = await connect(job).responses.create({ model: job.model, input: [{ role: "user", content }] });
  return { text: answer.output_text, usage: responseCounts(answer.usage) };
}

export async function speech(job) {
  const input = `Say hello ${job.prompt}`;
  const sound = await connect(job).audio.speech.create({ model: job.model, voice: "alloy", input });
  return { bytes: (await sound.arrayBuffer()).byteLength, characters: input.length };
}

export async function transcription(job) {
  const file = await toFile(Buffer.from(WAV, "base64"), "mock.wav");
  const answer = await connect(job).audio.transcriptions.create({ model: job.model, file, prompt: job.prompt });
  return { text: answer.text };
}

export async function image(job) {
  const answer = await connect(job).images.generate({ model: job.model, prompt: `A cat ${job.prompt}` });
  return { bytes: Buffer.from(answer.data[0].b64_json, "base64").length };
}

async function refused(job) {
  try {
    await ask(job, "Say hello");
    return { status: 200 };
  } catch (error) {
    return { status: error.status, code: error.code, kind: error.constructor.name };
  }
}

export const no_money = refused;
export const provider_fails = refused;
export const rate_limited = async (job) => ({ text: (await chat(job)).text, ...(await refused(job)) });
