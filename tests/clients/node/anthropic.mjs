// The package `@anthropic-ai/sdk`.

import Anthropic from "@anthropic-ai/sdk";
import { CITY, IMAGE_URL, LOOK, PNG, QUESTION, READ_BEFORE_LEAVING, WEATHER } from "./tasks.mjs";

const TOOL = { name: WEATHER.name, description: WEATHER.description, input_schema: WEATHER.parameters };

const connect = (job) =>
  new Anthropic({ baseURL: job.base_url, apiKey: job.api_key, maxRetries: 0, timeout: 30_000 });

const wish = (job, text, more) => ({
  model: job.model,
  max_tokens: 4000,
  messages: [{ role: "user", content: `${text} ${job.prompt}` }],
  ...more,
});

const ask = (job, text, more) => connect(job).messages.create(wish(job, text, more));
const begin = (job, text, more) => connect(job).messages.stream(wish(job, text, more));
const counts = (usage) => [usage.input_tokens, usage.output_tokens];
const textOf = (answer) => answer.content.map((block) => block.text ?? "").join("");

export async function chat(job) {
  const answer = await ask(job, "Say hello");
  return { text: textOf(answer), usage: counts(answer.usage) };
}

async function read(events, most) {
  const seen = { text: "", pieces: 0 };
  for await (const event of events) {
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") {
      seen.text += event.delta.text;
      seen.pieces += 1;
    }
    if (seen.pieces === most) break;
  }
  return seen;
}

export async function stream(job) {
  const events = begin(job, "Say hello");
  const seen = await read(events);
  return { ...seen, usage: counts((await events.finalMessage()).usage) };
}

export async function thinking(job) {
  const answer = await begin(job, "Say hello", { thinking: { type: "enabled", budget_tokens: 1024 } }).finalMessage();
  const thought = answer.content.find((block) => block.type === "thinking");
  if (!thought.signature) throw new Error("the thoughts are not signed");
  return { text: textOf(answer), thoughts: thought.thinking, usage: counts(answer.usage) };
}

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
  const first = await ask(job, "", { messages: [question], tools: [TOOL] });
  const call = first.content.find((block) => block.type === "tool_use");
  const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
  const messages = [question, { role: "assistant", content: first.content }, { role: "user", content: [result] }];
  const second = await ask(job, "", { messages, tools: [TOOL] });
  return { calls: [[call.name, call.input]], text: textOf(second) };
}

export async function parallel_tools(job) {
  const events = begin(job, QUESTION, { tools: [TOOL] });
  let parts = 0;
  events.on("inputJson", () => (parts += 1));
  const answer = await events.finalMessage();
  if (parts < 5 && job.provider !== "google") throw new Error("the arguments came whole");
  const calls = answer.content.filter((block) => block.type === "tool_use");
  return { calls: calls.map((call) => [call.name, call.input]) };
}

export async function structured(job) {
  const answer = await ask(job, "Describe Oslo", { output_config: { format: { type: "json_schema", schema: CITY } } });
  return { value: JSON.parse(textOf(answer)) };
}

async function look(job, source) {
  const content = [{ type: "image", source }, { type: "text", text: `${LOOK} ${job.prompt}` }];
  const answer = await ask(job, "", { messages: [{ role: "user", content }] });
  return { text: textOf(answer), usage: counts(answer.usage) };
}

export const image_url = (job) => look(job, { type: "url", url: IMAGE_URL });
export const image_base64 = (job) => look(job, { type: "base64", media_type: "image/png", data: PNG });

async function refused(job) {
  try {
    await ask(job, "Say hello");
    return { status: 200 };
  } catch (error) {
    return { status: error.status, code: error.error?.error?.code, kind: error.constructor.name };
  }
}

export const no_money = refused;
export const provider_fails = refused;
export const rate_limited = async (job) => ({ text: (await chat(job)).text, ...(await refused(job)) });
