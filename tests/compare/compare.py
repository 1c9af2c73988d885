#!/usr/bin/env python3
"""Compares builds of Farthing with each other and with nginx as a plain proxy, in one run on one machine, as Markdown.

    tests/compare/compare.py NAME=PROGRAM [NAME=PROGRAM ...] [options]

Each build gets a Postgres cluster and a NATS server of its own; all share one mock provider, which the last build serves.
The rounds of all measurements alternate, so that a change of the machine's speed meets all of them. Needs Debian's
packages postgresql, nats-server, nginx-light and wrk; root, or an account that may run initdb.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")
BODY = '{"model":"a-model","input":"hello"}'

# What the launcher of `farthing dev` sets; see deploy/dev/src/launcher/postgres.rs.
LAUNCHER_SETTINGS = [
    "max_connections=200", "shared_buffers=256MB", "effective_cache_size=1GB", "wal_buffers=16MB",
    "wal_compression=off", "max_wal_size=4GB", "checkpoint_timeout=15min", "random_page_cost=1.1", "jit=off",
]

# After a load, the projector writes what is left of it; then its CPU is read.
SETTLED_SECONDS = 0.3

# The sum of the positions up to which the requests are shown; see projector/src/checkpoint.rs.
SHOWN = """
SELECT sum(CASE WHEN s.starts_after <= c.position THEN greatest(c.position, s.ends_at) ELSE c.position END)
FROM requests.checkpoint AS c
LEFT JOIN ledger.idle_spans AS s ON s.partition = c.partition AND s.read_model = 'requests'
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(what, probe, timeout=60):
    end = time.monotonic() + timeout
    while True:
        try:
            found = probe()
            if found:
                return found
        except Exception as error:  # the probe is tried again; its last error is shown
            last = error
        else:
            last = "not yet"
        if time.monotonic() > end:
            sys.exit(f"{what}: {last}")
        time.sleep(0.02)


def postgres_bin():
    versions = [int(name) for name in os.listdir("/usr/lib/postgresql") if name.isdigit()]
    return f"/usr/lib/postgresql/{max(versions)}/bin"


def children(parent):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat(int(name))
            if fields and fields[1] == str(parent):
                found.append(int(name))
    return found


def stat(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None


def cpu(pid, with_ended_children=False):
    fields = stat(pid)
    if not fields:
        return 0.0
    times = fields[11:15] if with_ended_children else fields[11:13]
    return sum(int(field) for field in times) / TICKS


def memory_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


class Build:
    """A build of the program, with servers of its own."""

    def __init__(self, name, program, folder, options):
        self.name, self.program, self.options = name, program, options
        self.is_stock = "all" in options.stock or name in options.stock
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.processes, self.watcher = [], None
        self.start_postgres()
        self.nats_port = free_port()
        self.nats = self.spawn("nats", ["nats-server", "-a", "127.0.0.1", "-p", str(self.nats_port), "-js",
                                        "-sd", os.path.join(self.folder, "nats")])
        eventually("NATS", lambda: socket.create_connection(("127.0.0.1", self.nats_port)))
        self.nats_url = f"nats://127.0.0.1:{self.nats_port}"
        self.has_partitions = "--partitions" in subprocess.run(
            [program, "migrate", "--help"], capture_output=True, text=True).stdout
        self.has_pages = "--pages-listen" in subprocess.run(
            [program, "gateway", "--help"], capture_output=True, text=True).stdout
        migrate = ["migrate", "--mode", "test"]
        if self.has_partitions:
            migrate += ["--partitions", str(options.partitions)]
        self.operate(migrate)
        self.has_idle_spans = self.sql("SELECT to_regclass('ledger.idle_spans') IS NOT NULL") == "t"
        ready = os.path.join(self.folder, "projector.json")
        self.projector = self.spawn("projector", [program, "projector", "--database-url", self.url, "--nats-url",
                                                  self.nats_url, "--ready-file", ready])
        eventually("the projector", lambda: os.path.exists(ready))
        self.gateways = []
        for number in range(options.gateways):
            self.add_gateway()
        self.merchants = []

    def add_gateway(self):
        number = len(self.gateways)
        ready = os.path.join(self.folder, f"gateway-{number}.json")
        # That of a gateway that stopped.
        pathlib.Path(ready).unlink(missing_ok=True)
        port = free_port()
        pages = ["--pages-listen", "127.0.0.1:0"] if self.has_pages else []
        process = self.spawn(f"gateway-{number}", [
            self.program, "gateway", "--database-url", self.url, "--nats-url", self.nats_url, "--listen",
            f"127.0.0.1:{port}", "--allow-address", "127.0.0.0/8", "--ready-file", ready,
            *pages, *self.arguments()])
        eventually("a gateway", lambda: os.path.exists(ready))
        self.gateways.append((process, port))

    def arguments(self):
        """Further arguments of its gateways."""
        of_all = (given.split("=", 1) for given in self.options.gateway)
        return [argument for name, arguments in of_all if name == self.name for argument in shlex.split(arguments)]

    def spawn(self, name, command, **more):
        log = open(os.path.join(self.folder, name + ".log"), "w")
        process = subprocess.Popen(command, stdout=log, stderr=log, **more)
        self.processes.append(process)
        return process

    def start_postgres(self):
        bin, data = postgres_bin(), os.path.join(self.folder, "postgres")
        user = "postgres" if os.geteuid() == 0 else None
        os.mkdir(data)
        if user:
            shutil.chown(data, user)
        as_user = {"user": user} if user else {}
        subprocess.run([f"{bin}/initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **as_user)
        self.port = free_port()
        command = [f"{bin}/postgres", "-D", data, "-p", str(self.port), "-c", "unix_socket_directories=",
                   "-c", "listen_addresses=127.0.0.1"]
        settings = [] if self.is_stock else LAUNCHER_SETTINGS
        for setting in settings + self.options.set:
            command += ["-c", setting]
        self.postgres = self.spawn("postgres", command, cwd="/", **as_user)
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"
        eventually("Postgres", lambda: self.sql("SELECT 1") == "1")
        if not self.is_stock:
            # Segments to recycle, as in a server that has run for a while.
            self.sql("ALTER SYSTEM SET min_wal_size = '2GB'")
            self.sql("SELECT pg_reload_conf()")
            for _ in range(60):
                self.sql("SELECT pg_logical_emit_message(false, 'compare', '')", "SELECT pg_switch_wal()")
            self.sql("CHECKPOINT")

    def sql(self, *statements):
        command = ["psql", "-X", "-A", "-t", "-q", self.url]
        for statement in statements:
            command += ["-c", statement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def operate(self, arguments):
        command = [self.program, *arguments, "--database-url", self.url, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout or "{}")

    def rest(self, merchant, path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.gateways[0][1]}{path}", json.dumps(body).encode(),
            {"Authorization": f"Bearer {merchant['secret_key']}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def add_merchant(self):
        """A merchant with a customer and a meter, which it returns; adds the token of the customer's calls."""
        merchant = self.operate(["merchant", "create", "--name", "compared"])
        credit = ["wallet", "credit", "--amount", "1000000", "--reason", "a comparison"]
        self.operate([*credit, "--merchant", merchant["merchant_id"]])
        customer = self.rest(merchant, "/v1/customers", {"reference_id": "customer of " + merchant["merchant_id"]})
        self.operate([*credit, "--connection", customer["customer_id"]])
        meter = self.rest(merchant, "/v1/meters", {
            "name": "per call", "rate_type": "fixed", "tier_type": "requests",
            "tiers": [{"start": 0, "rate": "0.0001"}], "service_charge_payer": "merchant"})
        self.merchants.append(token_of(merchant, customer, meter))
        return merchant, customer, meter

    def used(self):
        """CPU seconds of each part so far."""
        # The one that watches the lag is not part of what is measured.
        backends = sum(cpu(child) for child in children(self.postgres.pid) if child != self.watcher)
        return {
            "gateway": sum(cpu(process.pid) for process, _ in self.gateways),
            "Postgres": backends + cpu(self.postgres.pid, True),
            "projector and relay": cpu(self.projector.pid),
            "NATS": cpu(self.nats.pid),
        }

    def head(self):
        if self.has_partitions:
            return int(self.sql("SELECT sum(position) FROM ledger.heads"))
        return int(self.sql("SELECT max(position) FROM ledger.head"))

    def shown(self):
        if self.has_idle_spans:
            return int(self.sql(SHOWN))
        return int(self.sql("SELECT sum(position) FROM requests.checkpoint"))

    def watch_lag(self):
        """Notes the head of the log and what the requests show, 50 times a second, until `lags` is called."""
        shown = SHOWN if self.has_idle_spans else "SELECT sum(position) FROM requests.checkpoint"
        head = "sum(position) FROM ledger.heads" if self.has_partitions else "max(position) FROM ledger.head"
        watched = f"SELECT extract(epoch FROM clock_timestamp()), (SELECT {head}), ({shown})"
        process = subprocess.Popen(["psql", "-X", "-A", "-t", "-q", self.url], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        process.stdin.write("SELECT pg_backend_pid();\n")
        process.stdin.flush()
        self.watcher = int(process.stdout.readline())
        process.stdin.write(" ".join(watched.split()) + " \\watch 0.02\n")
        process.stdin.flush()
        return process

    def lags(self, watching, ended):
        """Milliseconds until each noted head was shown, in order of size; and of the load that `ended`, the events that
        were not shown then, and the milliseconds until they were."""
        watching.send_signal(signal.SIGTERM)
        noted = [line.split("|") for line in watching.communicate()[0].splitlines() if line.count("|") == 2]
        noted = [(float(at), int(head), int(shown)) for at, head, shown in noted]
        lags, next_shown = [], 0
        for at, head, _ in noted:
            while next_shown < len(noted) and noted[next_shown][2] < head:
                next_shown += 1
            if next_shown == len(noted):
                break
            lags.append(max(0.0, noted[next_shown][0] - at) * 1000)
        after = [row for row in noted if row[0] >= ended]
        last = max(head for _, head, _ in noted)
        shown_at = next(at for at, _, shown in after if shown >= last)
        return sorted(lags), last - after[0][2], (shown_at - ended) * 1000

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGINT if process is self.postgres else signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def token_of(merchant, customer, meter):
    fields = {"secret_key": merchant["secret_key"], "customer_id": customer["customer_id"],
              "meter_slug": meter["meter_slug"]}
    return base64.b64encode(json.dumps(fields).encode()).decode()


def wrk(urls_and_tokens, ports, connections, seconds, folder, body=BODY):
    """Load on all `ports`; returns calls per second, p50 and p99 in milliseconds, errors."""
    script = os.path.join(folder, "load.lua")
    with open(script, "w") as file:
        file.write('wrk.method = "POST"\nwrk.body = %s\nlocal targets = {\n' % json.dumps(body))
        for target, token in urls_and_tokens:
            headers = '["Content-Type"] = "application/json"'
            if token:
                headers += f', ["Authorization"] = "Bearer {token}"'
            file.write(f'  {{"{target}", {{{headers}}}}},\n')
        file.write('}\nlocal at = 0\nfunction request()\n  at = at % #targets + 1\n'
                   '  return wrk.format(nil, targets[at][1], targets[at][2])\nend\n'
                   'function done(summary, latency)\n'
                   '  io.write(string.format("RESULT %d %f %f %d\\n", summary.requests, latency:percentile(50) / 1000, '
                   'latency:percentile(99) / 1000, summary.errors.status + summary.errors.connect + '
                   'summary.errors.read + summary.errors.timeout))\nend\n')
    runs = []
    each = max(1, connections // len(ports))
    for port in ports:
        runs.append(subprocess.Popen(["wrk", "-t", "1", "-c", str(each), "-d", f"{seconds}s", "--timeout", "30s",
                                      "-s", script, f"http://127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True))
    calls, p50, p99, errors = 0, [], [], 0
    for run in runs:
        found = re.search(r"RESULT (\d+) ([\d.]+) ([\d.]+) (\d+)", run.communicate()[0])
        calls += int(found[1])
        p50.append(float(found[2]))
        p99.append(float(found[3]))
        errors += int(found[4])
    return {"rate": calls / seconds, "calls": calls, "p50": statistics.mean(p50), "p99": max(p99), "errors": errors}


def plain_rows(build, seconds):
    """The milliseconds of a transaction of one inserted row, by pgbench at one client over TCP."""
    build.sql("CREATE TABLE IF NOT EXISTS public.plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")
    script = os.path.join(build.folder, "plain.sql")
    with open(script, "w") as file:
        file.write("INSERT INTO public.plain (body) VALUES (repeat('x', 600));\n")
    done = subprocess.run([f"{postgres_bin()}/pgbench", "-n", "-M", "prepared", "-c", "1", "-T", str(seconds), "-f", script,
                           build.url], capture_output=True, text=True)
    return float(re.search(r"latency average = ([\d.]+) ms", done.stdout)[1])


def nginx(folder, upstream):
    port, root = free_port(), os.path.join(folder, "nginx")
    os.mkdir(root)
    config = os.path.join(root, "nginx.conf")
    with open(config, "w") as file:
        file.write(f"""
daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};
  uwsgi_temp_path {root}; scgi_temp_path {root}; keepalive_requests 100000000;
  upstream mock {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}""")
    process = subprocess.Popen(["nginx", "-c", config], stderr=subprocess.DEVNULL)
    eventually("nginx", lambda: socket.create_connection(("127.0.0.1", port)))
    return process, port


def median(results, name):
    return statistics.median(result[name] for result in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("builds", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--merchants", type=int, default=1, help="merchants that the calls are of, in turn")
    parser.add_argument("--stock", action="append", default=[], metavar="NAME|all",
                        help="Postgres with its default settings")
    parser.add_argument("--gateway", action="append", default=[], metavar="NAME=ARGUMENTS",
                        help="further arguments of the gateways of a build")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Postgres")
    parser.add_argument("--keep", action="store_true", help="keep the folder with data and logs")
    options = parser.parse_args()
    # What was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    folder = tempfile.mkdtemp(prefix="farthing-compare-")
    os.chmod(folder, 0o755)
    builds, others = [], []
    try:
        for argument in options.builds:
            name, program = argument.split("=", 1)
            builds.append(Build(name, program, folder, options))
        ready = os.path.join(folder, "mock.json")
        mock = subprocess.Popen([builds[-1].program, "mock-provider", "--listen", "127.0.0.1:0", "--openai-listen",
                                 "127.0.0.1:0", "--ready-file", ready],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        others.append(mock)
        address = eventually("the mock provider", lambda: json.load(open(ready)))
        mock_port = int(address["listen"][0].rsplit(":", 1)[1])
        proxy, proxy_port = nginx(folder, mock_port)
        others.append(proxy)
        for build in builds:
            for _ in range(options.merchants):
                build.add_merchant()
        measure(options, folder, builds, mock, mock_port, proxy, proxy_port)
    finally:
        for build in builds:
            build.stop()
        for process in others:
            process.terminate()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def measure(options, folder, builds, mock, mock_port, proxy, proxy_port):
    url = f"http://127.0.0.1:{mock_port}/usage"
    target = "/v1/forward?u=" + urllib.parse.quote(url, safe="")
    widths = [int(width) for width in options.connections.split(",")]
    results = {}
    rows = {build.name: [] for build in builds}
    for build in builds:  # warm
        wrk([(target, token) for token in build.merchants], [port for _, port in build.gateways], 16, 2, folder)
    for _ in range(options.rounds):
        for build in builds:
            rows[build.name].append(plain_rows(build, 2))
        for width in widths:
            plain = wrk([("/usage", None)], [mock_port], width, options.seconds, folder)
            results.setdefault(("mock", width), []).append(plain)
            before = sum(cpu(child) for child in children(proxy.pid))
            plain = wrk([("/usage", None)], [proxy_port], width, options.seconds, folder)
            plain["cpu"] = sum(cpu(child) for child in children(proxy.pid)) - before
            results.setdefault(("nginx", width), []).append(plain)
            for build in builds:
                used = build.used()
                watching = build.watch_lag()
                calls = wrk([(target, token) for token in build.merchants], [port for _, port in build.gateways],
                            width, options.seconds, folder)
                ended = time.time()
                time.sleep(SETTLED_SECONDS)
                calls["used"] = {part: now - used[part] for part, now in build.used().items()}
                head = build.head()
                eventually("the requests are shown", lambda: build.shown() >= head, 600)
                time.sleep(0.1)  # until the watcher has seen it
                lags, calls["lag"], calls["shown_ms"] = build.lags(watching, ended)
                calls["p99_lag"] = lags[int(len(lags) * 0.99)] if lags else float("nan")
                calls["memory"] = max(memory_mb(process.pid) for process, _ in build.gateways)
                results.setdefault((build.name, width), []).append(calls)
    print(f"\n{options.rounds} rounds of {options.seconds} s; medians. Gateways {options.gateways}, partitions "
          f"{options.partitions}, merchants {options.merchants}; Postgres "
          f"{'with its defaults for ' + ', '.join(options.stock) if options.stock else 'as the launcher sets it'} "
          f"{' '.join(options.set)} {' '.join(options.gateway)}\n")
    print("| connections | | calls/s | of nginx | p50 ms | p99 ms | errors | lag in events, shown after ms, p99 lag ms |")
    print("|---|---|---|---|---|---|---|---|")
    for width in widths:
        base = median(results["nginx", width], "rate")
        for name in ["mock", "nginx", *(build.name for build in builds)]:
            them = results[name, width]
            lag = ", ".join(f"{median(them, kind):.0f}" for kind in ["lag", "shown_ms", "p99_lag"] if kind in them[0])
            print(f"| {width} | {name} | {median(them, 'rate'):.0f} | {median(them, 'rate') / base:.3f} | "
                  f"{median(them, 'p50'):.2f} | {median(them, 'p99'):.2f} | {sum(r['errors'] for r in them)} | {lag} |")
    print("\nCPU per call in microseconds, in multiples of nginx's in brackets\n")
    print("| connections | | gateway | Postgres | projector and relay | NATS | all | gateway's memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    for width in widths:
        unit = statistics.median(r["cpu"] / r["calls"] for r in results["nginx", width]) * 1e6
        print(f"| {width} | nginx | {unit:.1f} | | | | | |")
        for build in builds:
            them = results[build.name, width]
            parts = {part: statistics.median(r["used"][part] / r["calls"] for r in them) * 1e6 for part in them[0]["used"]}
            cells = " | ".join(f"{micros:.0f} ({micros / unit:.1f})" for micros in parts.values())
            total = sum(parts.values())
            print(f"| {width} | {build.name} | {cells} | {total:.0f} ({total / unit:.1f}) | {median(them, 'memory'):.0f} |")
    print("\n| | plain row ms | added p50 at 1 connection ms | of a plain row |\n|---|---|---|---|")
    if 1 in widths:
        for build in builds:
            plain = statistics.median(rows[build.name])
            added = median(results[build.name, 1], "p50") - median(results["mock", 1], "p50")
            print(f"| {build.name} | {plain:.3f} | {added:.2f} | {added / plain:.2f} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
