#!/usr/bin/env python3
"""Measures whether calls get slower as the log grows, how fast the log is verified, and what a long stream costs in
memory, as Markdown.

    tests/compare/growth.py PROGRAM [--events 10000000] [options]

Two instances of the program, each with servers of its own, on one machine: one is filled by real calls, the other stays
empty until both are measured in turn. Needs what compare.py needs.
"""

import argparse
import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from compare import Build, cpu, eventually, median, wrk

STREAM_BYTES = 1024 * 1024 * 1024
STREAM_CHUNK = 64 * 1024


def high_water_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) / 1024


def reset_high_water(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


class Stream(http.server.BaseHTTPRequestHandler):
    """A provider of one long stream of events."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        event = b'data: {"choices":[{"delta":{"content":"' + b"x" * (STREAM_CHUNK - 64) + b'"}}]}\n\n'
        end = b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in [event] * (STREAM_BYTES // len(event)) + [end, b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def log_message(self, *_):
        pass


def calls(build, target, seconds, folder):
    used = build.used()
    done = wrk([(target, token) for token in build.merchants], [port for _, port in build.gateways], 64, seconds, folder)
    done["cpu"] = {part: (now - used[part]) / done["calls"] * 1e6 for part, now in build.used().items()}
    return done


def fill(build, target, events, folder):
    print("| events in the log | calls/s | p99 ms | CPU µs a call: gateway, Postgres, projector and relay, NATS | errors |")
    print("|---|---|---|---|---|")
    while build.head() < events:
        done = calls(build, target, 30, folder)
        used = ", ".join(f"{micros:.0f}" for micros in done["cpu"].values())
        print(f"| {build.head()} | {done['rate']:.0f} | {done['p99']:.1f} | {used} | {done['errors']} |", flush=True)
    head = build.head()
    eventually("the requests are shown", lambda: build.shown() >= head, 600)


def verify(build):
    head, began = build.head(), time.monotonic()
    process = subprocess.Popen([build.program, "log", "verify", "--json", "--database-url", build.url],
                               stdout=subprocess.PIPE, text=True)
    peak, used = 0, 0
    while process.poll() is None:
        try:
            peak, used = max(peak, high_water_mb(process.pid)), cpu(process.pid)
        except (OSError, TypeError):
            pass  # it has just ended
        time.sleep(0.05)
    took = time.monotonic() - began
    verdict = process.stdout.read().strip()
    print(f"\n`log verify`: {head} events in {took:.1f} s, {head / took:.0f} events/s, {used:.1f} s of CPU, "
          f"{peak:.0f} MB; exit status {process.returncode}: {verdict[:300]}", flush=True)


def stream(build):
    provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stream)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    process, port = build.gateways[0]
    before = high_water_mb(process.pid) if not reset_high_water(process.pid) else 0
    url = urllib.parse.quote(f"http://127.0.0.1:{provider.server_port}/stream", safe="")
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began, used = time.monotonic(), cpu(process.pid)
    connection.request("POST", "/v1/forward?u=" + url, json.dumps({"model": "a-model", "stream": True}), {
        "Authorization": f"Bearer {build.merchants[0]}", "Content-Type": "application/json"})
    response, size = connection.getresponse(), 0
    while part := response.read(1 << 20):
        size += len(part)
    took = time.monotonic() - began
    print(f"\nA stream of {size / 1024 / 1024:.0f} MiB (status {response.status}): {took:.1f} s, "
          f"{cpu(process.pid) - used:.1f} s of CPU, memory {before:.0f} -> at most {high_water_mb(process.pid):.0f} MB",
          flush=True)
    provider.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--merchants", type=int, default=1)
    options = parser.parse_args()
    options.gateways, options.stock, options.set, options.gateway = 1, [], [], []
    folder = tempfile.mkdtemp(prefix="farthing-growth-")
    os.chmod(folder, 0o755)
    builds, mock = [], None
    try:
        for name in ["empty", "filled"]:
            builds.append(Build(name, options.program, folder, options))
            for _ in range(options.merchants):
                builds[-1].add_merchant()
        ready = os.path.join(folder, "mock.json")
        mock = subprocess.Popen([options.program, "mock-provider", "--listen", "127.0.0.1:0", "--openai-listen",
                                 "127.0.0.1:0", "--ready-file", ready],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = eventually("the mock provider", lambda: json.load(open(ready)))
        target = "/v1/forward?u=" + urllib.parse.quote(f"http://{address['listen'][0].split('//')[-1]}/usage", safe="")
        empty, filled = builds
        stream(empty)
        calls(empty, target, 2, folder)
        fill(filled, target, options.events, folder)
        results = {build.name: [] for build in builds}
        for _ in range(options.rounds):
            for build in builds:
                results[build.name].append(calls(build, target, options.seconds, folder))
        print("\n| log | calls/s | p50 ms | p99 ms | CPU µs a call, all processes |\n|---|---|---|---|---|")
        for name, them in results.items():
            used = sorted(sum(run["cpu"].values()) for run in them)[len(them) // 2]
            print(f"| {name} | {median(them, 'rate'):.0f} | {median(them, 'p50'):.2f} | {median(them, 'p99'):.2f} | {used:.0f} |")
        verify(filled)
    finally:
        for build in builds:
            build.stop()
        if mock:
            mock.terminate()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
