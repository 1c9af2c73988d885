"""Runs the scenarios of one Python client: `worker.py MODULE SECONDS` reads jobs as JSON from stdin and prints one JSON line
for each. The module has a function for each scenario, which takes the job and returns what the client saw. After SECONDS the
worker writes to stderr where each of its threads is, and ends, also if it hangs at its import or its exit."""

import concurrent.futures
import faulthandler
import gc
import importlib
import json
import sys
import time
import traceback

# Calls at once. More would only wait for the two cores.
THREADS = 4


class Job(dict):
    """A job: `scenario`, `base_url`, `api_key`, `model`, `prompt`, by attribute."""

    __getattr__ = dict.__getitem__


def run(module, job):
    try:
        saw = getattr(module, job.scenario)(job)
        return {"id": job.id, "saw": saw, "at": time.time()}
    except Exception:  # noqa: BLE001  whatever a client raises is the result
        return {"id": job.id, "raised": traceback.format_exc()}


def main():
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    module = importlib.import_module(sys.argv[1])
    # A collection within httpcore, which holds its lock then, may close a response that was left, which waits for that lock.
    gc.disable()
    first, *others = [Job(job) for job in json.load(sys.stdin)]
    # Alone: some packages import parts of themselves in their first call, which goes wrong in several threads at once.
    print(json.dumps(run(module, first)), flush=True)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for result in pool.map(lambda job: run(module, job), others):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
