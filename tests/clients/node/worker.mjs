// Runs the scenarios of one client: `node worker.mjs MODULE` reads jobs as JSON from stdin and prints one JSON line for
// each. The module has a function for each scenario, which takes the job and returns what the client saw.

import { text } from "node:stream/consumers";

// Calls at once. More would only wait for the two cores.
const WORKERS = 4;

const client = await import(`./${process.argv[2]}.mjs`);
const jobs = JSON.parse(await text(process.stdin));
const queue = jobs.values();

async function work() {
  for (const job of queue) {
    let result;
    try {
      const saw = await client[job.scenario](job);
      result = { id: job.id, saw, at: Date.now() / 1000 };
    } catch (error) {
      result = { id: job.id, raised: String(error?.stack ?? error) };
    }
    process.stdout.write(`${JSON.stringify(result)}\n`);
  }
}

await Promise.all(Array.from({ length: WORKERS }, work));
process.exit(0);
