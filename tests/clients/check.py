"""Runs all clients against an instance, and checks what they saw, the log, the wallets and the page docs/clients.md.

`check.py PROGRAM DATA INSTALLED`: the program, the folder with `ready.json` and `data/`, and the folder with the installed
packages. `prices` in place of PROGRAM prints the price catalogue of the run, `providers DATA` the relays of `relays.json`. FARTHING_CLIENTS runs only clients whose name
contains one of its words, and leaves out the table; WRITE_TABLE=1 writes the table."""

import base64
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import examples
import exclusions
import log_check
import seen_check
import table
from clients import (
    CLIENTS, OWN_KEY, ROUTES, SCENARIOS, TO_OTHERS, base_url, calls_of_others, endpoint_of, model_of, provider_of, scenarios_of,
)
from instance import FEES, PATIENCE_SECONDS, Api, Instance

HERE = pathlib.Path(__file__).resolve().parent

# Clients that run at once, and calls of the preparation at once.
CLIENTS_AT_ONCE = 3
CALLS_AT_ONCE = 4

# The longest run of one client. A worker in Python then lists where its threads are, and ends.
CLIENT_SECONDS = 300

# How much later a worker is killed that has not ended by itself.
LEEWAY_SECONDS = 10


def prepare(instance, api, meters, client, route, scenario, number, provider, endpoint):
    """The job of a scenario, with a customer and a credential of its own."""
    marker = f"{number}-{route}-{scenario}"
    if route == TO_OTHERS:
        marker = f"{number}-{provider}-{endpoint}-{scenario}"
    customer_id = api.make_customer(marker)
    if scenario != "no_money":
        instance.credit(customer_id)
    job = {
        "id": marker, "scenario": scenario, "route": route, "format": client.format, "client": client.name,
        "provider": provider, "endpoint": endpoint, "customer_id": customer_id,
        "base_url": base_url(client, route, instance.gateway, instance.mock, provider),
        "prompt": f"mock:marker={marker} {SCENARIOS[scenario]}".strip(), "has_meter": scenario != "rate_limited",
    }
    job["model"] = model_of(client, job["provider"], scenario)
    if scenario == "rate_limited":
        shape = "anthropic" if client.format == "anthropic" else "openai"
        job["api_key"] = api.make_spend_key(customer_id, rate_limit={"rpm": 1, "burst": 1}, request_shape=shape)
    else:
        _, tier_type = OWN_KEY.get(scenario, (None, "tokens_1m"))
        token = {"secret_key": api.secret_key, "customer_id": customer_id, "meter_slug": meters[tier_type]}
        if scenario in OWN_KEY:
            token["provider_key"] = "sk-of-the-caller"
        job["api_key"] = base64.b64encode(json.dumps(token).encode()).decode()
    return job


def command(client, installed):
    if client.environment == "node":
        return ["node", str(installed / "node" / "worker.mjs"), client.module]
    python = [str(installed / client.environment / "bin" / "python"), str(HERE / "python" / "worker.py")]
    return [*python, client.module, str(CLIENT_SECONDS)]


def environment():
    """No proxy, no telemetry, no keys of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith(("_proxy", "_api_key"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}


def run_client(client, jobs, installed):
    """What the client saw of each job, by its id, and what is wrong with the end of its worker; None if nothing is. Of a worker
    in Python that does not end in time, that is where each of its threads is."""
    given = {"input": json.dumps(jobs), "text": True, "env": environment(), "timeout": CLIENT_SECONDS + LEEWAY_SECONDS}
    # Files: a process that the worker started would keep a pipe open.
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        try:
            ended = subprocess.run(command(client, installed), stdout=stdout, stderr=stderr, **given)
            wrong = f"ended with {ended.returncode}" if ended.returncode else None
        except subprocess.TimeoutExpired:
            wrong = f"did not end within {CLIENT_SECONDS + LEEWAY_SECONDS} s"
        stdout.seek(0)
        stderr.seek(0)
        results = [json.loads(line) for line in stdout if line.startswith("{") and line.endswith("}\n")]
        said = stderr.read()
    results = {result["id"]: result for result in results}
    # The threads are listed behind this word.
    listed = said.rfind("Timeout (")
    said = said[listed:] if listed >= 0 else said[-2000:]
    missing = {"raised": f"its worker {wrong or 'ended'} without an answer"}
    answers = {job["id"]: results.get(job["id"], missing) for job in jobs}
    return answers, wrong and f"{client.name}: its worker {wrong}; {len(results)} of {len(jobs)} jobs have an answer:\n{said}"


def judge(api, job, result, calls):
    """What is wrong with a job."""
    if "raised" in result:
        return [result["raised"]]
    requests = api.ended_requests(job["customer_id"], len(calls))
    balance = None if job["scenario"] == "no_money" else api.balance(job["customer_id"])
    return seen_check.differences(job, result, calls) + log_check.differences(job, calls, requests, balance)


def ended_calls(instance, jobs):
    """The mock's calls of each job, once all of them have ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        journal = instance.journal()
        calls = {job["id"]: journal.get(job["id"], []) for job in jobs}
        if all(call["event"] == "ended" for of_job in calls.values() for call in of_job) or time.monotonic() > deadline:
            return calls
        time.sleep(0.1)


def main(program, data, installed):
    instance, installed = Instance(program, data), pathlib.Path(installed)
    only = os.environ.get("FARTHING_CLIENTS", "").split()
    clients = [client for client in CLIENTS if not only or any(word in client.name for word in only)]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        apis = list(pool.map(lambda _: Api(instance), clients))
        meters = {tier_type: apis[0].make_meter(tier_type) for tier_type in FEES}
        of_client = {client.name: (number, api) for number, (client, api) in enumerate(zip(clients, apis))}
        calls = [
            (provider_of(client, route), endpoint_of(client, scenario), client, route, scenario)
            for client in clients
            for route in ROUTES
            for scenario in scenarios_of(client, route)
        ]
        calls += [
            (provider, endpoint, client, TO_OTHERS, scenario)
            for provider, endpoint, client, scenario in calls_of_others(table.documented_endpoints())
            if client.name in of_client
        ]
        wanted = [
            (instance, api, meters, client, route, scenario, number, provider, endpoint)
            for provider, endpoint, client, route, scenario in calls
            for number, api in [of_client[client.name]]
        ]
        jobs = list(pool.map(lambda arguments: prepare(*arguments), wanted))
    prepared = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
        jobs_of = [[job for job in jobs if job["client"] == client.name] for client in clients]
        pairs = [pair for pair in zip(clients, jobs_of) if pair[1]]
        results, ends = {}, []
        for answers, wrong_end in pool.map(lambda pair: run_client(*pair, installed), pairs):
            results.update(answers)
            ends += [wrong_end] if wrong_end else []
    ran = time.monotonic()
    passed, failed, cells, others = 0, 0, set(), set()
    calls = ended_calls(instance, jobs)
    api_of = dict(zip((client.name for client in clients), apis))
    with concurrent.futures.ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        wrong = list(pool.map(lambda job: judged(api_of[job["client"]], job, results[job["id"]], calls[job["id"]]), jobs))
    for job, problems in zip(jobs, wrong):
        name = f"{job['client']}, {job['route']}: {job['scenario']}"
        if job["route"] == TO_OTHERS:
            name = f"{job['client']}, {job['provider']} {job['endpoint']}: {job['scenario']}"
        print(f"test {name} ... {'FAILED' if problems else 'ok'}")
        for problem in problems:
            print(f"    {problem}")
        passed, failed = passed + (not problems), failed + bool(problems)
        if not problems and job["route"] == TO_OTHERS:
            others.add((job["provider"], job["endpoint"], job["client"], job["scenario"]))
        elif not problems:
            cells.add((job["route"], job["client"], job["scenario"]))
    checks = [("every worker ends", lambda: "\n".join(ends) or None), ("the log proves itself", lambda: proves_itself(instance))]
    if not only:
        customer_id = apis[0].make_customer("examples")
        instance.credit(customer_id)
        key = apis[0].make_spend_key(customer_id)
        for example in examples.found():
            run = lambda example=example: examples.run(instance, key, installed, environment(), example)  # noqa: E731
            checks.append((f"the example of docs/clients.md for {example[0]}", run))
        models = ("the models of the examples have a price", lambda: examples.unpriced(program))
        checks.append(models)
        for client in exclusions.EXCLUDED:
            job = prepare(instance, apis[0], meters, client, "forward", "chat", f"excluded-{client.module}", client.provider or client.format, None)
            run = lambda client=client, job=job: exclusions.wrong(  # noqa: E731
                job, run_client(client, [job], installed)[0][job["id"]], instance.journal()
            )
            checks.append((f"{client.name} is excluded from forward by the credential that it makes", run))
        checks.append(("the tables of docs/clients.md are what passed", lambda: tables_are_right(cells, others)))
    with concurrent.futures.ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
        problems = list(pool.map(lambda check: check[1](), checks))
    for (name, _), problem in zip(checks, problems):
        print(f"test {name} ... {'FAILED' if problem else 'ok'}")
        if problem:
            print(f"    {problem}")
        passed, failed = passed + (not problem), failed + bool(problem)
    print(f"prepared in {prepared - started:.0f} s, ran in {ran - prepared:.0f} s, checked in {time.monotonic() - ran:.0f} s")
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    return 1 if failed else 0


def judged(api, job, result, calls):
    try:
        return judge(api, job, result, calls)
    except Exception:  # noqa: BLE001  a check that cannot be made has failed
        return [traceback.format_exc()]


def proves_itself(instance):
    try:
        instance.command("log", "verify")
    except (RuntimeError, json.JSONDecodeError) as error:
        return str(error)
    return None


def tables_are_right(cells, others):
    if os.environ.get("WRITE_TABLE"):
        table.write(cells, others)
    routes = table.differences(cells, others)
    return f"not those of {', '.join(routes)}: WRITE_TABLE=1 tests/clients/run writes them" if routes else None


if __name__ == "__main__":
    if sys.argv[1:] == ["prices"]:
        print(json.dumps(log_check.price_file()))
        sys.exit(0)
    if sys.argv[1:2] == ["providers"]:
        for name, address in json.loads((pathlib.Path(sys.argv[2]) / "relays.json").read_text()).items():
            print(f"{name}={address}")
        sys.exit(0)
    sys.exit(main(*sys.argv[1:]))
