#!/usr/bin/env python3
"""The cost of each shape of a call beside a plain forward, in one run on one machine, as Markdown.

    tests/compare/shapes.py PROGRAM [options]

A shape is a whole answer or a stream of 20 chunks and the usage, forwarded, or converted from a client of Anthropic's
format to a provider of Chat Completions. nginx passes the provider's side of each shape as a plain proxy. The rounds of all
shapes alternate. With --profile, perf also records the gateway under each shape once, and a table says where its time goes.
Needs what compare.py needs, and perf for that.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.parse

from compare import Build, children, cpu, eventually, median, memory_mb, nginx, wrk

CHUNKS = 20

# What a function is part of, by its name; the first that fits. Calls that were inlined count to their callers.
PARTS = [
    ("system calls, sockets among them", r"^\[k\]"),
    ("conversion between formats", r"farthing_formats"),
    ("usage in the response", r"farthing_api::forward::(usage|metered_body|pieces|turns|response_change)"),
    ("deciding and appending", r"farthing_(core|log)|tokio_postgres|postgres_protocol|sha2|rust_decimal"),
    ("the rest of the gateway", r"farthing_"),
    ("HTTP", r"hyper|http::|httparse|h2::|tower|axum|hashbrown.*HeaderMap"),
    ("JSON", r"serde"),
    ("memory", r"mi_|mimalloc|memmove|memset|memcpy|memcmp|alloc::|raw_vec"),
    ("the runtime", r"tokio|mio|futures|parking_lot|crossbeam"),
    ("other", r""),
]
TEXT = "Write a line about the sea. mock:words=%d" % CHUNKS


def chat(stream):
    body = {"model": "a-model", "messages": [{"role": "user", "content": TEXT}], "max_completion_tokens": 100}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body)


def messages(stream):
    body = {"model": "a-model", "max_tokens": 100, "messages": [{"role": "user", "content": TEXT}]}
    return json.dumps(body | ({"stream": True} if stream else {}))


def shapes(mock_port):
    """Name, what the provider gets (path, body), what the gateway gets (path, body)."""
    provider = f"http://127.0.0.1:{mock_port}"
    forwarded = lambda path: "/v1/forward?u=" + urllib.parse.quote(provider + path, safe="")
    converted = "/v1/rewrite/anthropic/" + urllib.parse.quote(provider + "/v1/chat/completions", safe="") + "/v1/messages"
    path, small = "/v1/chat/completions", '{"model":"a-model","input":"hello"}'
    return [
        ("small answer", ("/usage", small), (forwarded("/usage"), small)),
        ("chat", (path, chat(False)), (forwarded(path), chat(False))),
        ("chat, converted", (path, chat(False)), (converted, messages(False))),
        ("stream", (path, chat(True)), (forwarded(path), chat(True))),
        ("stream, converted", (path, chat(True)), (converted, messages(True))),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=4, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--profile", action="store_true", help="also say where the gateway's time goes, by perf")
    options = parser.parse_args()
    options.stock, options.set, options.gateway, options.gateways, options.partitions = [], [], [], 1, 8
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    folder = tempfile.mkdtemp(prefix="farthing-shapes-")
    os.chmod(folder, 0o755)
    build, others = None, []
    try:
        build = Build("build", options.program, folder, options)
        ready = os.path.join(folder, "mock.json")
        others.append(subprocess.Popen([options.program, "mock-provider", "--listen", "127.0.0.1:0", "--openai-listen",
                                        "127.0.0.1:0", "--ready-file", ready],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        address = eventually("the mock provider", lambda: json.load(open(ready)))
        mock_port = int(address["listen"][0].rsplit(":", 1)[1])
        proxy, proxy_port = nginx(folder, mock_port)
        others.append(proxy)
        build.add_merchant()
        measure(options, folder, build, mock_port, proxy, proxy_port)
    finally:
        if build:
            build.stop()
        for process in others:
            process.terminate()
        shutil.rmtree(folder, ignore_errors=True)


def measure(options, folder, build, mock_port, proxy, proxy_port):
    of_all = shapes(mock_port)
    token, gateway = build.merchants[0], build.gateways[0][1]
    for _, _, (path, body) in of_all:  # warm
        wrk([(path, token)], [gateway], 16, 1, folder, body)
    results = {}
    for _ in range(options.rounds):
        for name, (plain_path, plain_body), (path, body) in of_all:
            before = sum(cpu(child) for child in children(proxy.pid))
            plain = wrk([(plain_path, None)], [proxy_port], options.connections, options.seconds, folder, plain_body)
            plain["cpu"] = sum(cpu(child) for child in children(proxy.pid)) - before
            results.setdefault(("nginx", name), []).append(plain)
            used = build.used()
            calls = wrk([(path, token)], [gateway], options.connections, options.seconds, folder, body)
            head = build.head()
            eventually("the requests are shown", lambda: build.shown() >= head, 600)
            calls["used"] = {part: now - used[part] for part, now in build.used().items()}
            calls["memory"] = memory_mb(build.gateways[0][0].pid)
            results.setdefault(("gateway", name), []).append(calls)
    profiles = profile(options, folder, of_all, build.gateways[0], token) if options.profile else None
    print(f"\n{options.rounds} rounds of {options.seconds} s at {options.connections} connections; medians. CPU in "
          "microseconds per call; in brackets, multiples of nginx's\n")
    print("| shape | calls/s | of nginx | of the small answer | p50 ms | p99 ms | gateway's CPU | all CPU | errors | MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    small = median(results["gateway", of_all[0][0]], "rate")
    for name, _, _ in of_all:
        plain, them = results["nginx", name], results["gateway", name]
        unit = statistics.median(r["cpu"] / r["calls"] for r in plain) * 1e6
        own = statistics.median(r["used"]["gateway"] / r["calls"] for r in them) * 1e6
        whole = statistics.median(sum(r["used"].values()) / r["calls"] for r in them) * 1e6
        rate = median(them, "rate")
        print(f"| {name} | {rate:.0f} | {rate / median(plain, 'rate'):.3f} | {rate / small:.2f} | "
              f"{median(them, 'p50'):.1f} | {median(them, 'p99'):.1f} | {own:.0f} ({own / unit:.1f}) | {whole:.0f} "
              f"({whole / unit:.1f}) | {sum(r['errors'] for r in them + plain)} | {median(them, 'memory'):.0f} |")
    if profiles:
        print("\nWhere the gateway's time goes, in % of it:\n")
        print("| part | " + " | ".join(name for name, _, _ in of_all) + " |")
        print("|---|" + "---|" * len(of_all))
        for part, _ in PARTS:
            print(f"| {part} | " + " | ".join(f"{profiles[name][part]:.0f}" for name, _, _ in of_all) + " |")
    sys.stdout.flush()


def profile(options, folder, of_all, gateway, token):
    """The share of each part of the gateway's time, by shape."""
    process, port = gateway
    profiles = {}
    for name, _, (path, body) in of_all:
        data = os.path.join(folder, "perf.data")
        perf = subprocess.Popen(["perf", "record", "-q", "-F", "499", "-p", str(process.pid), "-o", data],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wrk([(path, token)], [port], options.connections, options.seconds, folder, body)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        report = subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "--sort", "symbol"],
                                capture_output=True, text=True, check=True).stdout
        shares = dict.fromkeys((part for part, _ in PARTS), 0.0)
        for share, symbol in re.findall(r"^\s+([\d.]+)%\s+(\[.\] .*?)\s*$", report, re.MULTILINE):
            part = next(part for part, pattern in PARTS if re.search(pattern, symbol))
            shares[part] += float(share)
        profiles[name] = shares
    return profiles


if __name__ == "__main__":
    main()
