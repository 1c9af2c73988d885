#!/usr/bin/env python3
"""Measures `farthing audit verify` beside a plain COPY of the same rows, its memory as the log grows, and whether the read
tables that are built again have the same SHA-256, as Markdown.

    tests/compare/verification.py PROGRAM [--events 1000000,10000000] [options]

A few calls through a gateway begin the log. Then the gateway stops, and copies of the last call are appended, each with an id
and balances of its own, so that the log holds from its first event to its last. Needs what compare.py needs, and openssl.
"""

import argparse
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from decimal import Decimal

from compare import Build, cpu, eventually, wrk
from growth import high_water_mb

CALLS_PER_BATCH = 16
COLUMNS = "partition, first_position, count, recorded_at, writer, events, hashes"
EPOCH_OF_POSTGRES = 946_684_800_000_000
READ_MODELS = ["customers", "connections", "meters", "spend_keys", "secret_keys", "checkout_sessions", "requests", "usage",
               "payment_methods", "plans", "subscriptions", "entries", "journal"]


class Chain:
    """The end of a partition, and the last call of its merchant."""

    def __init__(self, build, partition):
        self.partition = partition
        position, head = build.sql(
            f"SELECT position, encode(hash, 'hex') FROM ledger.heads WHERE partition = {partition}").split("|")
        self.position, self.hash = int(position), bytes.fromhex(head)
        micros, self.writer = build.sql(
            "SELECT (extract(epoch FROM recorded_at) * 1000000)::bigint, writer FROM ledger.batches "
            f"WHERE partition = {partition} ORDER BY first_position DESC LIMIT 1").split("|")
        self.micros = int(micros)
        lines = build.sql(f"SELECT convert_from(events, 'UTF8') FROM ledger.batches WHERE partition = {partition} "
                          "ORDER BY first_position").splitlines()
        events = [json.loads(line) for line in lines]
        self.balances, metered = {}, []
        for at, event in enumerate(events):
            body = event["body"]
            if event["kind"] in ("wallet.credited", "wallet.debited"):
                self.balances[body["wallet_id"]] = Decimal(body["balance_after"])
            if event["kind"] == "request.metered":
                metered.append(at)
        last = events[metered[-1]]["body"]
        self.tier = max(int(events[at]["body"]["tier_position"]) for at in metered)
        request = last["request_id"]
        own = [line for line, event in zip(lines, events) if event["body"].get("request_id") == request]
        kinds = [json.loads(line)["kind"] for line in own]
        assert kinds == ["request.opened", "request.metered", "wallet.debited", "wallet.debited"], kinds
        self.draws = []
        for at, line in enumerate(own):
            own[at] = line.replace(request, "{id}") if "{" not in request else sys.exit("an id has braces")
        own[1] = own[1].replace(f'"tier_position":"{last["tier_position"]}"', '"tier_position":"{tier}"')
        for at in (2, 3):
            body = json.loads(own[at])["body"]
            self.draws.append((body["wallet_id"], Decimal(body["amount"])))
            own[at] = own[at].replace(f'"balance_after":"{body["balance_after"]}"', '"balance_after":"{balance}"')
        self.lines, self.prefix, self.number = own, request[:14], 0
        created = next(at for at, event in enumerate(events) if event["kind"] == "customer.created")
        self.customer_line, self.customer = lines[created], events[created]["body"]

    def new_customer(self):
        """The line of a further customer, which has three states: itself, its wallet and its reference id."""
        self.number += 1
        line, number = self.customer_line, f"{self.number:016}"
        for member in ("customer_id", "wallet_id"):
            line = line.replace(self.customer[member], self.customer[member][:14] + number)
        return [line.replace(self.customer["reference_id"], f"{self.customer['reference_id']} {number}").encode()]

    def call(self):
        """The lines of the next call."""
        self.number += 1
        self.tier += 1
        request = f"{self.prefix}{self.number:016}"
        first, second, *debits = self.lines
        lines = [first.replace("{id}", request), second.replace("{id}", request).replace("{tier}", str(self.tier))]
        for line, (wallet, amount) in zip(debits, self.draws):
            self.balances[wallet] -= amount
            lines.append(line.replace("{id}", request).replace("{balance}", f"{self.balances[wallet]:.10f}"))
        return [line.encode() for line in lines]

    def batch(self, lines_of):
        """The next record batch, as a row of a binary COPY."""
        lines = [line for _ in range(CALLS_PER_BATCH) for line in lines_of(self)]
        first, hashes, writer = self.position + 1, [], self.writer.encode()
        link = struct.pack(">iq", 8, self.micros) + struct.pack(">i", len(writer)) + writer
        for line in lines:
            self.position += 1
            digest = hashlib.sha256(self.hash)
            digest.update(struct.pack(">iq", 8, self.position) + link + struct.pack(">i", len(line)) + line)
            self.hash = digest.digest()
            hashes.append(self.hash)
        fields = [struct.pack(">h", self.partition), struct.pack(">q", first), struct.pack(">i", len(lines)),
                  struct.pack(">q", self.micros - EPOCH_OF_POSTGRES), writer, b"\n".join(lines), b"".join(hashes)]
        return struct.pack(">h", len(fields)) + b"".join(struct.pack(">i", len(field)) + field for field in fields)


def furnish(build, merchant, _, meter):
    """Gives a merchant something in every read table that calls do not fill. Returns a spend key, for a call that fills the
    rest."""
    def post(path, **body):
        return build.rest(merchant, path, body)

    card = {"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"}
    method = post("/v1/payment_methods", card=card)["payment_method_id"]
    post("/v1/wallet/fund", amount="10", payment_method_id=method)
    key = post("/v1/spend_keys", name="a laptop", spend_limit={"amount": "10", "cycle": "monthly"})
    key = post(f"/v1/spend_keys/{key['spend_key_id']}/rotate")
    bundle = {"name": "more", "cost": "1", "credit_amount": "2"}
    plan = post("/v1/plans", name="free", period_amount=0, included_credit="1", meter_ids=[meter["meter_id"]],
                credit_bundles=[bundle])
    subscriber = post("/v1/customers", reference_id="subscriber of " + merchant["merchant_id"])["customer_id"]
    post("/v1/subscriptions", customer_id=subscriber, plan_id=plan["plan_id"])
    session = post("/v1/checkout_sessions", checkout_mode="credit_bundle", customer_id=subscriber,
                   origin_url="https://app.example/", credit_bundle_id=plan["credit_bundles"][0]["credit_bundle_id"])
    buy(session["url"], plan["credit_bundles"][0]["cost"])
    post("/v1/requests", request_id="reported", customer_id=subscriber, meter_slug=meter["meter_slug"], metadata={"team": "blue"})
    build.operate(["key", "issue", "--merchant", merchant["merchant_id"]])
    return key["key"]


def buy(page, price):
    """Buys the bundle of a checkout page with a card."""
    with urllib.request.urlopen(page) as answer:
        credit = re.search('name="credit" value="([^"]*)"', answer.read().decode())[1]
    form = {"price": price, "credit": credit, "pay": "card", "card_number": "4242424242424242", "card_expiry": "04/39",
            "card_cvc": "123"}
    address = urllib.parse.urlsplit(page)
    pages = http.client.HTTPConnection(address.netloc)
    pages.request("POST", address.path, urllib.parse.urlencode(form), {"Content-Type": "application/x-www-form-urlencoded"})
    answer = pages.getresponse()
    if answer.status != 303:
        sys.exit(f"the bundle is not bought: {answer.status} {answer.read()}")


def append(build, chains, events, lines_of=Chain.call):
    """Appends copies of calls, or what else `lines_of` makes, until the log has `events` events."""
    copy = subprocess.Popen(["psql", "-X", "-q", build.url, "-c", f"COPY ledger.batches ({COLUMNS}) FROM STDIN BINARY"],
                            stdin=subprocess.PIPE)
    copy.stdin.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
    while sum(chain.position for chain in chains) < events:
        for chain in chains:
            copy.stdin.write(chain.batch(lines_of))
    copy.stdin.write(struct.pack(">h", -1))
    copy.stdin.close()
    if copy.wait():
        sys.exit("the copies of calls cannot be appended")
    for chain in chains:
        build.sql(f"UPDATE ledger.heads SET position = {chain.position}, hash = '\\x{chain.hash.hex()}' "
                  f"WHERE partition = {chain.partition}")
    build.sql("CHECKPOINT", "ANALYZE ledger.batches")


def states_are_stored(build):
    """Waits until the stored states are those of the last events, and stops the gateway."""
    at_rest = ("SELECT count(*) = 0 FROM ledger.heads AS h JOIN ledger.checkpoints AS c USING (partition) "
               "WHERE h.position <> c.position")
    eventually("the states are stored", lambda: build.sql(at_rest) == "t", 1800)
    gateway, _ = build.gateways.pop()
    gateway.send_signal(signal.SIGTERM)
    gateway.wait(60)


def catch_up(build):
    """Lets a gateway store the states of all events, as it does in operation: a checkpoint after them is not used."""
    began = time.monotonic()
    build.add_gateway()
    states_are_stored(build)
    return time.monotonic() - began


class Snapshots:
    """Watches the age of the oldest snapshot of a client, ten times a second: old rows are kept while it lasts."""

    AGE = ("SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) FROM pg_stat_activity "
           "WHERE backend_xmin IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()")

    def __init__(self, build):
        self.process = subprocess.Popen(["psql", "-X", "-A", "-t", "-q", build.url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(self.AGE + " \\watch 0.1\n")
        self.process.stdin.flush()

    def oldest(self):
        """The greatest age in seconds since it began."""
        self.process.send_signal(signal.SIGTERM)
        lines, _ = self.process.communicate()
        return max((float(line) for line in lines.split() if line.replace(".", "", 1).isdigit()), default=0)


def run(command, stdout=None):
    """Runs a command: seconds, CPU seconds of its own, the most memory in MB, its exit code and its output."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out if stdout is None else stdout)
        peak, used = 0, 0
        while process.poll() is None:
            try:
                peak, used = max(peak, high_water_mb(process.pid)), cpu(process.pid)
            except (OSError, TypeError):
                pass  # it has just ended
            time.sleep(0.02)
        took = time.monotonic() - began
        out.seek(0)
        return took, used, peak, process.returncode, out.read()


def verify(build, more=("--skip-read-tables",)):
    took, used, peak, code, out = run([build.program, "audit", "verify", "--json", "--database-url", build.url, *more])
    report = json.loads(out)
    if code or report["verdict"] != "verified":
        sys.exit(f"the log is not sound: {out[:2000]}")
    return took, used, peak, report


def measure(build, rounds, folder, has_checkpoints, has_projector):
    head = build.head()
    size = build.sql("SELECT pg_size_pretty(pg_total_relation_size('ledger.batches'))")
    print(f"\n{head} events in {build.sql('SELECT count(*) FROM ledger.batches')} record batches, {size} with indexes\n")
    print("| what | seconds | events/s | CPU s: program, Postgres | memory of the program, MB | oldest snapshot, s |\n"
          "|---|---|---|---|---|---|")
    rows = f"SELECT {COLUMNS} FROM ledger.batches"
    server = ["psql", "-X", "-q", build.url, "-c", f"COPY ({rows}) TO '/dev/null'"]
    client = ["psql", "-X", "-q", build.url, "-c", f"COPY ({rows}) TO STDOUT"]

    def show(what, measured, *arguments):
        before, snapshots = build.used()["Postgres"], Snapshots(build)
        took, used, peak, *rest = measured(*arguments)
        oldest = snapshots.oldest()
        # A backend counts as soon as it has ended.
        time.sleep(0.5)
        postgres = build.used()["Postgres"] - before
        print(f"| {what} | {took:.1f} | {head / took:.0f} | {used:.1f}, {postgres:.1f} | {peak:.0f} | {oldest:.1f} |",
              flush=True)
        return rest

    for _ in range(rounds):
        show("`COPY` to /dev/null by the server", run, server)
        show("`COPY` to stdout, discarded", run, client, subprocess.DEVNULL)
        show("`audit verify`", verify, build)
        show("`audit verify --jobs 1`", verify, build, ["--skip-read-tables", "--jobs", "1"])
    if has_projector:
        show("`audit verify` with the read tables", verify, build, [])
    if has_checkpoints:
        checkpoints = os.path.join(folder, f"checkpoints-{head}")
        key = os.path.join(folder, "audit.pem")
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, stderr=subprocess.DEVNULL)
        flags = ["--skip-read-tables", "--checkpoints", checkpoints, "--key-file", key, "--checkpoint-every", "250000"]
        show("`audit verify`, writing checkpoints", verify, build, flags)
        took = catch_up(build)
        report, = show("`audit verify` from the last checkpoints", verify, build, flags)
        print(f"\nThe last run trusted {report['trusted_events']} events and verified {report['events']}. Before it, a gateway stored "
              f"the states of the events that had been copied into the log, in {took:.1f} s.")
        files = [entry.stat().st_size for entry in os.scandir(checkpoints)]
        print(f"\n{len(files) // 2} checkpoints, {sum(files) / 1024:.0f} KiB")


class Verifications:
    """Verifies the log again and again until it is ended."""

    def __init__(self, build, flags):
        self.events, self.runs, self.ends = 0, 0, threading.Event()
        self.build, self.flags = build, flags
        self.thread = threading.Thread(target=self.run)
        self.began = time.monotonic()
        self.thread.start()

    def run(self):
        while not self.ends.is_set():
            command = [self.build.program, "audit", "verify", "--json", "--database-url", self.build.url, *self.flags]
            report = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            self.events, self.runs = self.events + report["events"], self.runs + 1

    def end(self):
        """The number of runs, each of which found the log sound, and the events per second."""
        self.ends.set()
        self.thread.join()
        return self.runs, self.events / (time.monotonic() - self.began)


def beside_traffic(build, load, rounds):
    """Calls alone, and beside verifications, in turns."""
    build.add_gateway()
    load()
    print(f"\nCalls beside verifications of {build.head()} events:\n\n"
          "| round | beside | calls/s | p50, ms | p99, ms | failed calls | runs of `audit verify` | events/s |\n"
          "|---|---|---|---|---|---|---|---|")
    kinds = [("nothing", None), ("`audit verify`", ["--skip-read-tables"]),
             ("`audit verify --jobs 1`", ["--skip-read-tables", "--jobs", "1"])]
    for number in range(1, rounds + 1):
        for what, flags in kinds:
            verifications = Verifications(build, flags) if flags else None
            seen = load()
            runs, rate = verifications.end() if verifications else (0, 0)
            print(f"| {number} | {what} | {seen['rate']:.0f} | {seen['p50']:.1f} | {seen['p99']:.1f} | {seen['errors']} | "
                  f"{runs} | {rate:.0f} |", flush=True)


def digests(build):
    head = build.head()
    eventually("the read tables show the log", lambda: build.shown() >= head, 1800)
    print(f"\nSHA-256 over the read tables after {head} events:\n\n| table | rows | live | rebuilt |\n|---|---|---|---|")
    for model in READ_MODELS:
        report = build.operate(["projections", "verify", model, "--sha256"])
        for table in report["tables"]:
            if table["live"] != table["rebuilt"] or not table["rows"]:
                sys.exit(f"{model}: {table}")
            print(f"| {model}.{table['table']} | {table['rows']} | {table['live'][:16]}… | {table['rebuilt'][:16]}… |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--events", default="1000000,10000000", help="sizes of the log, in ascending order")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--merchants", type=int, default=4)
    parser.add_argument("--customers", type=int, default=0, help="add customers at the end, to see what states take")
    parser.add_argument("--digests", action="store_true", help="also compare the read tables at the first size")
    parser.add_argument("--read-tables", action="store_true", help="let the projector follow, and verify the read tables, too")
    parser.add_argument("--traffic", type=int, metavar="SECONDS", help="at the end, measure calls beside verifications")
    options = parser.parse_args()
    options.gateways, options.stock, options.set, options.gateway = 1, [], [], []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    folder = tempfile.mkdtemp(prefix="farthing-verification-")
    os.chmod(folder, 0o755)
    build, mock = None, None
    try:
        build = Build("verified", options.program, folder, options)
        spend_keys = [furnish(build, *build.add_merchant()) for _ in range(options.merchants)]
        ready = os.path.join(folder, "mock.json")
        mock = subprocess.Popen([options.program, "mock-provider", "--listen", "127.0.0.1:0", "--openai-listen",
                                 "127.0.0.1:0", "--ready-file", ready],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = eventually("the mock provider", lambda: json.load(open(ready)))
        target = "/v1/forward?u=" + urllib.parse.quote(f"http://{address['listen'][0].split('//')[-1]}/usage", safe="")
        for key in spend_keys:
            call = urllib.request.Request(f"http://127.0.0.1:{build.gateways[0][1]}{target}",
                                          headers={"Authorization": f"Bearer {key}"})
            urllib.request.urlopen(call).close()
        calls = [(target, token) for token in build.merchants]
        wrk(calls, [port for _, port in build.gateways], 8, 2, folder)
        states_are_stored(build)
        used = build.sql("SELECT partition FROM ledger.heads WHERE position > 100 ORDER BY 1").split()
        chains = [Chain(build, int(partition)) for partition in used]
        help_text = subprocess.run([options.program, "audit", "verify", "--help"], capture_output=True, text=True).stdout
        for number, events in enumerate(int(size) for size in options.events.split(",")):
            if number == 1 and not options.read_tables:
                build.projector.send_signal(signal.SIGTERM)
                build.projector.wait(60)
            append(build, chains, events)
            if number == 0 and options.digests:
                digests(build)
            if options.read_tables:
                eventually("the read tables show the log", lambda: build.shown() >= build.head(), 1800)
            measure(build, options.rounds, folder, "--checkpoints" in help_text, options.read_tables)
        if options.customers:
            append(build, chains, sum(chain.position for chain in chains) + options.customers, Chain.new_customer)
            measure(build, 1, folder, "--checkpoints" in help_text, options.read_tables)
        if options.traffic:
            beside_traffic(build, lambda: wrk(calls, [port for _, port in build.gateways], 32, options.traffic, folder),
                           options.rounds)
    finally:
        if build:
            build.stop()
        if mock:
            mock.terminate()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
