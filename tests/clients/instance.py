"""The instance under test: its REST API, its operator commands and the journal of its mock provider."""

import json
import os
import pathlib
import subprocess
import time
import urllib.error
import urllib.request

# The money of each customer.
FUNDS = "5"

# How long the log may take to show the end of a call whose client has left.
PATIENCE_SECONDS = 60

# The fee of each meter, by its tier type: per million tokens or characters, and per minute.
FEES = {"tokens_1m": "4.1234567891", "characters_1m": "234.5678901234", "minutes": "0.0123456789"}


class Instance:
    """A running `farthing dev`."""

    def __init__(self, program, data):
        self.program = program
        self.data = pathlib.Path(data)
        self.ready = json.loads((self.data / "ready.json").read_text())
        self.gateway = self.ready["base_url"].removesuffix("/v1/")
        self.mock = {name: self.ready[f"{name}_url"] for name in ("openai", "anthropic", "google")}
        # The run of the clients has relays, by which the mock stands for further providers.
        relays = self.data / "relays.json"
        if relays.exists():
            self.mock |= {name: f"http://{address}" for name, address in json.loads(relays.read_text()).items()}

    def command(self, *arguments):
        """Runs an operator command and returns what it prints as JSON."""
        environment = {**os.environ, "FARTHING_DATABASE_URL": self.ready["database_url"]}
        done = subprocess.run(
            [self.program, *arguments, "--json"], env=environment, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise RuntimeError(f"farthing {' '.join(arguments)}: {done.stderr.strip()} {done.stdout.strip()}")
        return json.loads(done.stdout)

    def issue_key(self):
        return self.command("key", "issue", "--merchant", self.ready["merchant_id"])["secret_key"]

    def credit(self, customer_id):
        self.command("wallet", "credit", "--connection", customer_id, "--amount", FUNDS, "--reason", "test")

    def journal(self):
        """The calls of the mock provider, by their marker, in the order of their arrival."""
        calls = {}
        for line in (self.data / "data" / "mock-journal.ndjson").read_text().splitlines():
            entry = json.loads(line)
            calls.setdefault(entry["id"], {}).update(entry)
        by_marker = {}
        for call in calls.values():
            by_marker.setdefault(call["marker"], []).append(call)
        return by_marker


class Api:
    """The REST API, with one secret key: each may make 1,000 calls a minute."""

    def __init__(self, instance):
        self.base = instance.gateway
        self.secret_key = instance.issue_key()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base}/v1{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {self.secret_key}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from None

    def make_meter(self, tier_type):
        tiers = [{"start": 0, "rate": FEES[tier_type]}]
        meter = {"name": f"clients {tier_type}", "rate_type": "fixed", "tier_type": tier_type, "tiers": tiers}
        return self.call("POST", "/meters", meter)["meter_slug"]

    def make_customer(self, reference_id):
        return self.call("POST", "/customers", {"reference_id": reference_id})["customer_id"]

    def make_spend_key(self, customer_id, **limits):
        """A key that spends the customer's money."""
        key = {"name": "clients", "customer_id": customer_id, **limits}
        return self.call("POST", "/spend_keys", key)["key"]

    def balance(self, customer_id):
        return self.call("GET", f"/customers/{customer_id}/wallet")["balance"]

    def ended_requests(self, customer_id, count):
        """A customer's requests, oldest first, each as it is read by its id, once this many have ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.call("GET", f"/requests?customer_id={customer_id}&limit=100")["data"]
            has_ended = len(found) >= count and all(item["status"] != "pending" for item in found)
            if has_ended or time.monotonic() > deadline:
                return [self.call("GET", f"/requests/{item['request_id']}") for item in reversed(found)]
            time.sleep(0.05)
