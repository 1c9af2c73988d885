#!/usr/bin/env python3
"""Measures how long a page of a wallet's entries and of its statement takes at the beginning of a long list and deep in it, as
Markdown.

    tests/compare/deep_pages.py PROGRAM [--entries 1000000] [options]

A credit by an operator begins the list. Then the gateway stops, copies of the credit are appended to the log, each with an id, a
time and a balance of its own, and a gateway starts again. Pages are asked for in turn, over one connection; cursors are positions,
so those of deep pages are computed, and every page must have the entries that its place says. Needs what compare.py needs.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from datetime import datetime, timedelta
from decimal import Decimal

from compare import Build, eventually
from verification import CALLS_PER_BATCH, Chain, append

AMOUNT = "0.01"
LAST_CREDIT = ("SELECT b.partition, h.position, encode(h.hash, 'hex'), (extract(epoch FROM b.recorded_at) * 1000000)::bigint, "
               "b.writer, convert_from(b.events, 'UTF8') FROM ledger.batches AS b JOIN ledger.heads AS h USING (partition) "
               "WHERE b.first_position + b.count - 1 = h.position AND position('{wallet}' IN convert_from(b.events, 'UTF8')) > 0")


class Credits(Chain):
    """The end of a partition whose last event is a credit of a wallet."""

    def __init__(self, build, wallet):
        row = build.sql(LAST_CREDIT.format(wallet=wallet))
        partition, position, head, micros, self.writer, line = row.split("|", 5)
        self.partition, self.position, self.hash, self.micros = int(partition), int(position), bytes.fromhex(head), int(micros)
        event = json.loads(line)
        body = event["body"]
        assert event["kind"] == "wallet.credited" and body["wallet_id"] == wallet, line
        self.first, self.number, self.balance = self.position, 0, Decimal(body["balance_after"])
        self.at = datetime.fromisoformat(event["occurred_at"])
        self.prefix = body["credit_id"][:14]
        for value, name in [(body["credit_id"], "id"), (event["occurred_at"], "at"), (body["balance_after"], "balance")]:
            assert value in line, (value, line)
            line = line.replace(f'"{value}"', f'"<{name}>"').replace(f"{value}/", f"<{name}>/")
        assert body["credit_id"] not in line, line
        self.line = line

    def credit(self):
        """The line of the next credit, a millisecond later."""
        self.number += 1
        self.balance += Decimal(AMOUNT)
        at = (self.at + timedelta(milliseconds=self.number)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        line = self.line.replace("<id>", f"{self.prefix}{self.number:016}").replace("<at>", at)
        return [line.replace("<balance>", f"{self.balance:.10f}").encode()]


class Rest:
    """A connection of a merchant."""

    def __init__(self, port, key):
        self.connection, self.key = http.client.HTTPConnection("127.0.0.1", port, timeout=600), key

    def get(self, target):
        """The body, and the milliseconds that it took; again if there were too many requests."""
        while True:
            began = time.monotonic()
            try:
                self.connection.request("GET", target, headers={"Authorization": f"Bearer {self.key}"})
                answer = self.connection.getresponse()
                body = answer.read()
            except Exception:
                self.connection.close()
                raise
            took = (time.monotonic() - began) * 1000
            if answer.status == 429:
                time.sleep(float(answer.headers.get("Retry-After", 1)))
                continue
            if answer.status != 200 or answer.headers.get("x-service-stale"):
                raise RuntimeError(f"{target}: {answer.status} {answer.headers} {body[:500]}")
            return json.loads(body), took


class Entries:
    """`GET /v1/ledger/entries`: newest first."""

    name, member = "`GET /v1/ledger/entries`", "data"

    def __init__(self, wallet, chain, limit):
        self.chain, self.limit = chain, limit
        self.target = f"/v1/ledger/entries?wallet_id={wallet}&limit={limit}"

    def position(self, index):
        return self.chain.position - index


class Statement:
    """`GET /v1/ledger/statement`: oldest first, from the first of the copied credits on."""

    name, member = "`GET /v1/ledger/statement`", "entries"

    def __init__(self, wallet, chain, limit):
        self.chain, self.limit = chain, limit
        start, end = (chain.at + timedelta(milliseconds=after) for after in (0, chain.number + 1))
        period = "&".join(f"{name}={at.strftime('%Y-%m-%dT%H:%M:%S.%f')[:-3]}Z" for name, at in [("start", start), ("end", end)])
        self.target = f"/v1/ledger/statement?wallet_id={wallet}&{period}&limit={limit}"

    def position(self, index):
        return self.chain.first + index


def page(rest, shown, number):
    """Asks for a page, which must have the entries of its place. Gives its cursor and the milliseconds that it took."""
    before = (number - 1) * shown.limit
    cursor = f"&cursor={shown.position(before - 1)}" if before else ""
    body, took = rest.get(shown.target + cursor)
    ids = [int(entry["id"]) for entry in body[shown.member]]
    expected = [shown.position(index) for index in range(before, before + shown.limit)]
    if ids != expected:
        sys.exit(f"{shown.name}: page {number} has {ids[:2]}…, not {expected[:2]}…")
    return body.get("next_cursor"), took


def measure(rest, shown, depths, rounds):
    # The cursors that are computed are those that a reader who pages through gets.
    for number in range(1, min(4, max(depths))):
        cursor, _ = page(rest, shown, number)
        assert cursor == str(shown.position(number * shown.limit - 1)), cursor
    took = {number: [] for number in depths}
    for number in depths:
        page(rest, shown, number)
    for _ in range(rounds):
        for number in depths:
            took[number].append(page(rest, shown, number)[1])
    first = statistics.median(took[depths[0]])
    for number, times in took.items():
        median, late = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        print(f"| {shown.name} | {number} | {median:.2f} | {late:.2f} | {median / first:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=100, help="entries of a page")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    options.gateways, options.stock, options.set, options.gateway, options.partitions = 1, [], [], [], 8
    deepest = options.entries // options.limit
    depths = [number for number in [1, 10, 100, 1_000, 10_000, 100_000] if number < deepest] + [deepest]
    folder = tempfile.mkdtemp(prefix="farthing-deep-pages-")
    os.chmod(folder, 0o755)
    build = None
    try:
        build = Build("paged", options.program, folder, options)
        merchant = build.operate(["merchant", "create", "--name", "paged"])
        credit = ["wallet", "credit", "--merchant", merchant["merchant_id"], "--amount", AMOUNT, "--reason", "a comparison"]
        wallet = build.operate(credit)["wallet_id"]
        process, _ = build.gateways.pop()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        os.remove(os.path.join(build.folder, "gateway-0.json"))
        chain = Credits(build, wallet)
        began = time.monotonic()
        # Whole record batches, so at least as many entries as were asked for.
        append(build, [chain], chain.first + options.entries + CALLS_PER_BATCH, Credits.credit)
        shown = f"SELECT min(position) >= {chain.position} FROM entries.checkpoint WHERE partition = {chain.partition}"
        eventually("the entries are shown", lambda: build.sql(shown) == "t", 3600)
        filled = time.monotonic() - began
        build.sql("VACUUM ANALYZE entries.entries", "CHECKPOINT")
        build.add_gateway()
        rest = Rest(build.gateways[0][1], merchant["secret_key"])
        views = [of(wallet, chain, options.limit) for of in (Entries, Statement)]
        # The new gateway first folds what follows the stored states.
        eventually("the first page", lambda: rest.get(views[0].target), 3600)
        size = build.sql("SELECT pg_size_pretty(pg_total_relation_size('entries.entries'))")
        print(f"{chain.number + 1} entries of a wallet, {size} with indexes, appended and shown in {filled:.0f} s; pages of "
              f"{options.limit}, each asked for {options.rounds} times in turn\n")
        print("| list | page | median ms | 95th percentile ms | median, by that of page 1 |\n|---|---|---|---|---|")
        for view in views:
            measure(rest, view, depths, options.rounds)
    finally:
        if build:
            build.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
