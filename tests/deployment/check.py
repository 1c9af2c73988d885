"""Carries out deploy/compose.yaml as processes and reads the systemd unit; see `run`, which calls this in namespaces."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPOSE = ROOT / "deploy/compose.yaml"
DOCKERFILE = ROOT / "deploy/Dockerfile"
UNIT = ROOT / "deploy/farthing@.service"
RUNNING = ROOT / "docs/running.md"
SECRETS = pathlib.Path("/run/secrets")
SECONDS = 60
API = "http://127.0.0.1:8080/v1"


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def eventually(what, attempt):
    """The first result of `attempt` that is no exception."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return attempt()
        except Exception as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {error}") from error
            time.sleep(0.1)


class Composition:
    """compose.yaml, as Docker Compose reads it, with services that are processes."""

    def __init__(self, folder, bin_folder):
        self.folder, self.bin = pathlib.Path(folder), bin_folder
        self.deploy = self.folder / "deploy"
        self.deploy.mkdir()
        shutil.copy(COMPOSE, self.deploy)
        text = COMPOSE.read_text()
        steps = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
        assert steps, "the head of compose.yaml makes the secrets"
        checked(["sh", "-eu", "-c", "\n".join(steps)], cwd=self.folder)
        given = dict(line.split("=", 1) for line in (self.deploy / ".env").read_text().splitlines())
        variables = {**self.of_image(), **given}
        # `${NAME:-default}` and `${NAME:?error}`
        pattern = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
        value = lambda found: variables.get(found[1]) or (found[3] if found[2] == "-" else variables[found[1]])  # noqa: E731
        self.file = yaml.safe_load(pattern.sub(value, text))
        self.services = self.file["services"]
        self.processes = {}

    def of_image(self):
        """The variables of the image."""
        lines = [line for line in DOCKERFILE.read_text().splitlines() if line.startswith("ENV ")]
        return dict(pair.split("=", 1) for line in lines for pair in line.removeprefix("ENV ").split())

    def show_secrets(self, name):
        """Puts the secrets of a service, and no others, where its container has them, with the modes of the files."""
        shutil.rmtree(SECRETS, ignore_errors=True)
        SECRETS.mkdir()
        for secret in self.services[name].get("secrets", []):
            shutil.copy2(self.deploy / self.file["secrets"][secret]["file"], SECRETS / secret)

    def start_servers(self):
        """Debian's servers in the place of the images, with what compose.yaml gives these."""
        postgres = self.services["postgres"]["environment"]
        assert sorted(postgres) == ["POSTGRES_PASSWORD_FILE", "POSTGRES_USER"], postgres
        self.show_secrets("postgres")
        data = self.folder / "postgres"
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]
        initdb = [f"{self.bin}/initdb", "-D", str(data), "-A", "scram-sha-256", "-U", postgres["POSTGRES_USER"]]
        checked([*as_postgres, *initdb, f"--pwfile={postgres['POSTGRES_PASSWORD_FILE']}"])
        log = str(data / "log")
        checked([*as_postgres, f"{self.bin}/pg_ctl", "-D", str(data), "-w", "-l", log, "-o", f"-k '{data}'", "start"])
        password = (SECRETS / "postgres-password").read_text().strip()
        create = [f"{self.bin}/createdb", "-h", "127.0.0.1", "-U", postgres["POSTGRES_USER"], postgres["POSTGRES_USER"]]
        checked(create, env={"PGPASSWORD": password})
        is_ready = self.services["postgres"]["healthcheck"]["test"]
        assert is_ready[:2] == ["CMD", "pg_isready"], is_ready
        checked([f"{self.bin}/pg_isready", *is_ready[2:]])
        command = [part.replace("/data", str(self.folder / "nats")) for part in self.services["nats"]["command"]]
        with open(self.folder / "nats.log", "w") as output:
            self.processes["nats"] = subprocess.Popen(["nats-server", *command], stdout=output, stderr=output)

    def command(self, name, arguments=None):
        """How a service of the program runs: as the image's user, with its variables alone."""
        service = self.services[name]
        assert service["image"] == "farthing", service
        user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE.read_text(), re.MULTILINE)
        variables = {**self.of_image(), **service["environment"]}
        command = [str(self.folder / "farthing"), *(arguments or service["command"])]
        as_user = ["setpriv", "--reuid", user[1], "--regid", user[2], "--clear-groups", "--"]
        return [*as_user, *command], {key: str(value) for key, value in variables.items()}

    def run(self, name, arguments=None):
        """Runs a service to its end, and returns what it prints."""
        self.show_secrets(name)
        command, variables = self.command(name, arguments)
        return checked(command, env=variables)

    def start(self, name, is_up):
        """Starts a service that runs on. Its secrets stay until `is_up`."""
        self.show_secrets(name)
        command, variables = self.command(name)
        log = self.folder / f"{name}.log"
        with open(log, "w") as output:
            self.processes[name] = subprocess.Popen(command, env=variables, stdout=output, stderr=output)

        def attempt():
            if self.processes[name].poll() is not None:
                sys.exit(f"{name} ended:\n{log.read_text()}")
            is_up(log)

        eventually(f"{name} is up", attempt)

    def holds_no_secret(self, name):
        """No variable and no argument of a process is a secret."""
        secrets = [path.read_text().strip() for path in (self.deploy / "secrets").iterdir()]
        password = (self.deploy / "secrets/postgres-password").read_text().strip()
        shown = [pathlib.Path(f"/proc/{self.processes[name].pid}/{part}").read_text() for part in ("environ", "cmdline")]
        for secret in [*secrets, password]:
            assert secret and all(secret not in text for text in shown), f"{name} shows a secret"


def call(method, path, key, body=None):
    request = urllib.request.Request(API + path, None if body is None else json.dumps(body).encode(), method=method)
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return json.load(response)


def compose(folder, bin_folder):
    """What is wrong with the composition; it raises."""
    checked(["ip", "link", "set", "lo", "up"])
    checked(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    composition = Composition(folder, bin_folder)
    hosts = composition.folder / "hosts"
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in ["localhost", *composition.services]))
    checked(["mount", "--bind", str(hosts), "/etc/hosts"])
    composition.start_servers()
    composition.run("migrate")
    for name in ("gateway", "projector"):
        assert composition.services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}

    def answers(_):
        with urllib.request.urlopen(f"{API}/openapi.json", timeout=SECONDS) as response:
            assert response.status == 200

    def is_ready(log):
        assert "role.ready" in log.read_text()

    composition.start("gateway", answers)
    composition.start("projector", is_ready)
    for name in ("gateway", "projector"):
        composition.holds_no_secret(name)
    # What the ports publish is what the gateway serves.
    for port in composition.services["gateway"]["ports"]:
        inside = port.rsplit(":", 1)[1]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{inside}/", timeout=SECONDS)
        except urllib.error.HTTPError as error:
            assert error.code == 404, port
    merchant = json.loads(composition.run("operator", ["merchant", "create", "--json"]))
    key = merchant["secret_key"]
    customer = call("POST", "/customers", key, {"reference_id": "ada"})["customer_id"]
    shown = call("GET", "/customers", key)["data"]
    assert [item["customer_id"] for item in shown] == [customer], shown
    command, variables = composition.command("operator", ["doctor", "--json"])
    composition.show_secrets("operator")
    report = json.loads(subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS).stdout)
    failed = [check for check in report["checks"] if check["verdict"] == "failed"]
    assert not failed, failed


def unit(folder, program):
    """What `systemd-analyze` finds in the unit of each role with the drop-in of the page."""
    units = pathlib.Path(folder) / "units"
    units.mkdir()
    (units / "farthing@.service").write_text(UNIT.read_text().replace("/usr/local/bin/farthing", program))
    page = RUNNING.read_text()
    drop_in = re.search(r"```ini\n# /etc/systemd/system/(farthing@gateway\.service\.d)/(\S+)\n(.*?)```", page, re.DOTALL)
    (units / drop_in[1]).mkdir()
    (units / drop_in[1] / drop_in[2]).write_text(drop_in[3])
    for role in ("gateway", "projector"):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(units / f"farthing@{role}.service")],
            capture_output=True, text=True, timeout=SECONDS,
        )
        # It also reads the units of this machine, which may have faults of their own.
        found = [line for line in (done.stdout + done.stderr).splitlines() if "farthing" in line]
        assert not found, found


def main(folder, bin_folder):
    checks = [("the unit of systemd is valid", lambda: unit(folder, f"{folder}/farthing"))]
    left_out = shutil.which("systemd-analyze") is None
    if left_out:
        print("Left out: the unit of systemd: there is no systemd-analyze")
        checks = []
    checks.append(("the services of compose.yaml serve a merchant", lambda: compose(folder, bin_folder)))
    passed = 0
    for name, check in checks:
        try:
            check()
            passed += 1
            print(f"test {name} ... ok")
        except (Exception, SystemExit) as error:
            print(f"test {name} ... FAILED\n{type(error).__name__}: {error}")
    failed = len(checks) - passed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
