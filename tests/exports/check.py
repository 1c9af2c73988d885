"""Makes calls on an instance, exports them in every format, and opens the files with each tool.

`check.py PROGRAM DATA`: the program, and the folder with `ready.json` of `farthing dev`."""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import sys
import time
import traceback
import urllib.request
from decimal import Decimal

import focus_check
import statement
import tools
from instance import Api, Instance

REPORTS = int(os.environ.get("EXPORT_REPORTS", "120"))
CALLS = 3
TABLES = ["requests", "entries", "events"]
FORMATS = ["csv", "parquet", "ndjson", "focus"]
GENESIS = "0" * 64

# Names that a spreadsheet would take for formulas, or that break a careless reader.
MODELS = ['=HYPERLINK("http://evil.example","x")', "@SUM(1+1)", "+1", "-2", "'=quoted", 'a "b", c\nd', "ünï✓", "gpt-4o", "007"]


class Exports:
    """An instance and its exports."""

    def __init__(self, program, data):
        self.instance, self.data = Instance(program, data), pathlib.Path(data)
        self.manifests = {}
        # A customer's, with many entries.
        self.wallet = None

    def export(self, name, *arguments):
        folder = self.data / name
        shown = self.instance.command("export", "--out", str(folder), *arguments)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert shown == manifest
        self.manifests[name] = manifest
        return manifest

    def files(self, name):
        """Each file of an export, with its entry in the manifest."""
        for entry in self.manifests[name]["files"]:
            yield self.data / name / entry["file"], entry


def make_calls(exports):
    """Reports of usage, and calls to the mock provider."""
    api = Api(exports.instance)
    meter = api.make_meter("tokens_1m")
    customers = [api.make_customer(f"export-{number}") for number in range(3)]
    for customer_id in customers:
        exports.instance.credit(customer_id)
    exports.instance.command("wallet", "credit", "--connection", customers[0], "--amount", "1", "--reason", "=SUM(1;1)")
    exports.wallet = api.call("GET", f"/connections/{customers[0]}")["wallet"]["wallet_id"]

    def report(number):
        api.call("POST", "/requests", {
            "request_id": f"report-{number}", "customer_id": customers[number % 3], "meter_slug": meter, "provider": "openai",
            "model": MODELS[number % len(MODELS)], "metadata": {"team": f"=team {number % 5}", "env": "prod, \"eu\""},
            "usage": {"input_tokens": 1 + 977 * number % 8191, "output_tokens": 1 + 31 * number % 127},
        })

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(report, range(REPORTS)))
    token = {"secret_key": api.secret_key, "customer_id": customers[0], "meter_slug": meter, "provider_key": "sk-of-the-caller"}
    credential = base64.b64encode(json.dumps(token).encode()).decode()
    for _ in range(CALLS):
        url = f"{exports.instance.gateway}/v1/forward?u={exports.instance.mock['openai']}/v1/chat/completions"
        body = {"model": "mock-openai", "messages": [{"role": "user", "content": "hello"}]}
        request = urllib.request.Request(url, json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {credential}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 200
            response.read()
    deadline = time.monotonic() + 60
    while any(item["status"] == "pending" for item in api.call("GET", "/requests?limit=100")["data"]):
        assert time.monotonic() < deadline, "a call does not end"
        time.sleep(0.05)


def each_tool_has_the_sums(exports, reader, name):
    """Each column of amounts adds up to the manifest's sum, and there are as many rows."""
    for file, entry in exports.files(name):
        rows, sums = reader(file, list(entry["sums"]))
        assert rows == entry["rows"], f"{file.name}: {rows} rows, {entry['rows']} in the manifest"
        expected = {column: Decimal(total) for column, total in entry["sums"].items()}
        assert sums == expected, f"{file.name}: {sums}, expected {expected}"


def the_manifests_have_the_sums_of_the_log(exports):
    """The trial balance is made of the same log by other code."""
    report = exports.instance.command("audit", "trial-balance")
    accounts = {name: Decimal(balance) for name, balance in report["accounts"].items()}
    account = lambda *names: -sum((accounts.get(name, Decimal(0)) for name in names), Decimal(0))
    heads = {head["partition"]: (head["position"], head["hash"]) for head in report["heads"]}
    for name in FORMATS:
        sums = {entry["table"]: {k: Decimal(v) for k, v in entry["sums"].items()} for _, entry in exports.files(name)}
        charged = account("provider_cost", "fee_revenue", "service_charge")
        if name == "focus":
            assert {sums["focus"][cost] for cost in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")} == {charged}
        else:
            assert sums["requests"]["total_request_cost"] == charged > 0, (charged, sums["requests"])
            funds = account("customer_balances", "merchant_wallets", "plan_credit", "bundle_credit")
            assert sums["entries"]["change"] == funds, (funds, sums["entries"])
        covered = {span["partition"]: (span["last"]["position"], span["last"]["hash"]) for span in exports.manifests[name]["log"]}
        assert covered == heads, (covered, heads)
        assert all(span["after"] == {"position": 0, "hash": GENESIS} for span in exports.manifests[name]["log"])


def the_files_are_those_of_the_manifests(exports):
    for name in exports.manifests:
        files = {file.name for file in (exports.data / name).iterdir()}
        assert files == {entry["file"] for _, entry in exports.files(name)} | {"manifest.json"}, files
        for file, entry in exports.files(name):
            data = file.read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"]), file


def every_format_has_the_same_values(exports):
    """CSV and Parquet against NDJSON, value by value. An apostrophe before a formula is taken off again."""
    import csv

    import pyarrow.parquet

    plain = lambda text: text[1:] if re.match(r"'+[=+\-@\t\r\n＝＋－＠]", text) else text
    for table in TABLES:
        lines = (exports.data / "ndjson" / f"{table}.ndjson").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        with open(exports.data / "csv" / f"{table}.csv", newline="", encoding="utf-8") as text:
            of_csv = list(csv.DictReader(text, strict=True))
        of_parquet = pyarrow.parquet.read_table(exports.data / "parquet" / f"{table}.parquet").to_pylist()
        assert len(rows) == len(of_csv) == len(of_parquet)
        for row, in_csv, in_parquet in zip(rows, of_csv, of_parquet):
            for column, value in row.items():
                shown, typed = plain(in_csv[column]), in_parquet[column]
                if isinstance(value, (dict, list)):
                    shown, typed = json.loads(shown), json.loads(typed)
                elif isinstance(typed, Decimal):
                    assert shown == value, (column, shown, value)
                    shown, typed, value = Decimal(shown), typed, Decimal(value)
                elif hasattr(typed, "isoformat"):
                    typed = typed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                elif isinstance(value, int):
                    shown = int(shown)
                elif value is None:
                    shown = shown or None
                assert shown == value == typed, (table, column, shown, value, typed)


def no_field_of_a_csv_file_is_a_formula(exports):
    import csv

    seen = 0
    for name in ("csv", "focus"):
        for file, entry in exports.files(name):
            with open(file, newline="", encoding="utf-8") as text:
                for row in csv.DictReader(text, strict=True):
                    for column, field in row.items():
                        is_number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", field) is not None
                        assert is_number or not field.startswith(("=", "+", "-", "@", "\t", "\r")), (file.name, column, field)
                        seen += field.startswith("'=")
    assert seen > 0, "no call has a name that looks like a formula"


def focus_follows_the_specification(exports):
    (file, entry), = exports.files("focus")
    found, rows = focus_check.errors(file)
    assert not found, found[:10]
    assert len(rows) == entry["rows"] == 1 + REPORTS + CALLS, len(rows)
    assert sum(json.loads(row["Tags"]).get("env") == 'prod, "eu"' for row in rows) == REPORTS
    assert exports.manifests["focus"]["focus_version"] == focus_check.SPECIFICATION["version"]
    (file, _), = exports.files("empty-focus")
    assert focus_check.errors(file) == ([], [])


def the_focus_check_finds_what_is_wrong(exports):
    """The checker itself: each of these changes must be found."""
    (file, _), = exports.files("focus")
    text = file.read_text(encoding="utf-8")
    changed = exports.data / "changed.csv"
    for old, new in [
        (",Usage,", ",Usages,"), ("BilledCost,", "BilledCosts,"), (",USD,", ",Dollar,"), ("Usage-Based", "Daily"),
        (",Generative AI,", ",Storage Platforms,"), ("T00:00:00Z", "T00:00:00"), (",Customer,", ",,"), (",Standard,", ",,"),
    ]:
        assert old in text, old
        changed.write_text(text.replace(old, new, 1 if old.endswith("Cost,") else -1), encoding="utf-8")
        try:
            found, _ = focus_check.errors(changed)
        except (KeyError, ValueError):
            continue
        assert found, f"{old} became {new}, and nothing was found"


def libreoffice_opens_the_csv_files(exports):
    """By default, as a person would. No cell is a formula, and each number of at most 15 digits is exact."""
    import csv

    for name, tables in (("csv", TABLES), ("focus", ["focus"])):
        for table in tables:
            file = exports.data / name / f"{table}.csv"
            folder = exports.data / f"office-{table}"
            folder.mkdir()
            header, *cells = list(tools.libreoffice_cells(file, folder))
            header = [text for text, _ in header if text]
            with open(file, newline="", encoding="utf-8") as text:
                rows = list(csv.DictReader(text, strict=True))
            assert len(cells) == len(rows), f"{table}: {len(cells)} rows of {len(rows)}"
            entry = next(entry for _, entry in exports.files(name) if entry["table"] == table)
            sums = dict.fromkeys(entry["sums"], Decimal(0))
            for row in cells:
                assert all(formula is None for _, formula in row), f"{table}: a formula: {row}"
                values = dict(zip(header, (text for text, _ in row)))
                for column in sums:
                    sums[column] += Decimal(values[column])
            assert sums == {column: Decimal(total) for column, total in entry["sums"].items()}, (table, sums)


def incremental_exports_add_up(exports):
    """Parquet: the parts together are the whole."""
    import pyarrow
    import pyarrow.parquet

    for table in TABLES:
        parts = [pyarrow.parquet.read_table(exports.data / name / f"{table}.parquet") for name in ("first", "second", "third")]
        joined = pyarrow.concat_tables(parts).sort_by([("partition", "ascending"), ("position", "ascending")])
        whole = pyarrow.parquet.read_table(exports.data / "parquet" / f"{table}.parquet")
        whole = whole.sort_by([("partition", "ascending"), ("position", "ascending")])
        assert joined.equals(whole), f"{table}: {joined.num_rows} of {whole.num_rows}"
    assert exports.manifests["third"]["files"][0]["rows"] == 0
    assert all(entry["rows"] > 0 for _, entry in exports.files("first")), exports.manifests["first"]


def incremental_focus_exports_add_up(exports):
    """Each row of the whole file is in one of the parts, once."""
    lines = lambda name: (exports.data / name / "focus.csv").read_text(encoding="utf-8").splitlines()
    parts = [lines(name) for name in ("first-focus", "second-focus")]
    header, *whole = lines("focus")
    assert all(part[0] == header and len(part) > 1 for part in parts), parts
    assert sorted(parts[0][1:] + parts[1][1:]) == sorted(whole)


def incremental_exports_keep_the_period(exports):
    """The parts of an export of a period together are an export of that period."""
    import pyarrow
    import pyarrow.parquet

    read = lambda name, table: pyarrow.parquet.read_table(exports.data / name / f"{table}.parquet")
    for period in ("past", "period"):
        for table in TABLES:
            joined = pyarrow.concat_tables([read(f"{part}-{period}", table) for part in ("first", "second")])
            expected = read("parquet", table) if period == "period" else read("parquet", table).slice(0, 0)
            by_place = [("partition", "ascending"), ("position", "ascending")]
            assert joined.sort_by(by_place).equals(expected.sort_by(by_place)), (period, table, joined.num_rows)


def prepare(exports):
    """All exports of the checks."""
    first = ["--format", "parquet"]
    exports.instance.credit(exports.instance.ready["customer_id"])
    Api(exports.instance).call("POST", "/requests", {
        "request_id": "first", "provider": "openai", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1},
        "customer_id": exports.instance.ready["reference_id"], "meter_slug": exports.instance.ready["meter_slug"],
    })
    exports.export("first", *first)
    exports.export("first-focus", "--format", "focus")
    exports.export("first-period", *first, "--from", "2020-01-01", "--to", "2100-01-01")
    exports.export("first-past", *first, "--from", "2020-01-01", "--to", "2020-02-01")
    make_calls(exports)
    for name in ("focus", "period", "past"):
        arguments = ["--format", "focus"] if name == "focus" else first
        exports.export(f"second-{name}", *arguments, "--since", str(exports.data / f"first-{name}" / "manifest.json"))
    for name in ("second", "third"):
        before = "first" if name == "second" else "second"
        exports.export(name, *first, "--since", str(exports.data / before / "manifest.json"))
    for name in FORMATS:
        exports.export(name, "--format", name)
        exports.export(f"empty-{name}", "--format", name, "--from", "2020-01-01", "--to", "2020-01-02")


def main(program, data):
    exports = Exports(program, data)
    prepare(exports)
    checks = [
        the_manifests_have_the_sums_of_the_log, the_files_are_those_of_the_manifests, every_format_has_the_same_values,
        no_field_of_a_csv_file_is_a_formula, incremental_exports_add_up, incremental_focus_exports_add_up,
        incremental_exports_keep_the_period, focus_follows_the_specification,
        the_focus_check_finds_what_is_wrong,
    ]
    named = {check.__name__: lambda check=check: check(exports) for check in checks}
    for name in FORMATS:
        for reader in tools.READERS[name]:
            for of in (name, f"empty-{name}"):
                named[f"{reader.__name__}_has_the_sums_of_{of}"] = (
                    lambda reader=reader, of=of: each_tool_has_the_sums(exports, reader, of)
                )
    if tools.libreoffice():
        named["libreoffice_opens_the_csv_files"] = lambda: libreoffice_opens_the_csv_files(exports)
    else:
        print("Left out: exports in LibreOffice: there is no soffice")
    checks = [statement.the_csv_adds_up, statement.the_text_adds_up]
    if statement.browser():
        checks.append(statement.the_page_prints_on_several_sheets)
    else:
        print("Left out: the printed statement: there is no browser")
    for check in checks:
        named[f"statement_{check.__name__}"] = lambda check=check: check(exports, exports.wallet)
    failed = 0
    for name, check in named.items():
        try:
            check()
            print(f"test {name} ... ok")
        except Exception:
            failed += 1
            print(f"test {name} ... FAILED\n{traceback.format_exc()}")
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {len(named) - failed} passed; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
