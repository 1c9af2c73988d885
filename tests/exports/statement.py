"""A statement as CSV, as text and as a printed page: each adds up, to the last digit."""

import csv
import io
import os
import re
import shutil
import subprocess
from decimal import Decimal

import pypdf

PARTS = ["balance", "plan_credit", "bundle_credit"]
AMOUNT = re.compile(r"-?[0-9]+\.[0-9]{10}")
OWNER = "Example Ltd & Sons"


def printed(exports, wallet, *arguments):
    """What `audit statement` prints."""
    environment = {**os.environ, "FARTHING_DATABASE_URL": exports.instance.ready["database_url"]}
    command = [exports.instance.program, "audit", "statement", "--wallet", wallet, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def of_json(exports, wallet):
    """Its entries, and the funds that it closes with."""
    statement = exports.instance.command("audit", "statement", "--wallet", wallet)
    return statement["entries"], {part: Decimal(statement["closing"][part]) for part in PARTS}


def the_csv_adds_up(exports, wallet):
    entries, closing = of_json(exports, wallet)
    rows = list(csv.DictReader(io.StringIO(printed(exports, wallet, "--csv"), newline=""), strict=True))
    assert [rows[0]["kind"], rows[-1]["kind"], len(rows)] == ["opening", "closing", len(entries) + 2]
    for part in PARTS:
        total = Decimal(rows[0][part])
        for row in rows[1:-1]:
            total += Decimal(row[f"{part}_change"])
            assert total == Decimal(row[part]), (part, row)
        assert total == Decimal(rows[-1][part]) == closing[part], (part, rows[-1])
    assert [row["note"] for row in rows if "SUM" in row["note"]] == ["'=SUM(1;1)"], "a reason is no formula"


def the_text_adds_up(exports, wallet):
    entries, closing = of_json(exports, wallet)
    amounts = [AMOUNT.findall(line) for line in printed(exports, wallet).splitlines()]
    opening, *lines, last = [[Decimal(amount) for amount in line] for line in amounts if len(line) >= 3]
    assert len(lines) == len(entries), (len(lines), len(entries))
    total = sum(opening[-3:])
    for line in lines:
        change, *funds = line[-4:]
        total += change
        assert total == sum(funds), line
    assert last[-3:] == [closing[part] for part in PARTS], last


def browser():
    names = ["chromium", "google-chrome", "chrome"]
    return next((path for path in map(shutil.which, names) if path), None)


def the_page_prints_on_several_sheets(exports, wallet):
    entries, closing = of_json(exports, wallet)
    page, pdf = exports.data / "statement.html", exports.data / "statement.pdf"
    page.write_text(printed(exports, wallet, "--format", "html", "--for", OWNER), encoding="utf-8")
    # Chromium runs under root in containers only without its sandbox.
    command = [browser(), "--headless", "--no-sandbox", "--no-pdf-header-footer", f"--print-to-pdf={pdf}", str(page)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    sheets = pypdf.PdfReader(pdf).pages
    assert len(sheets) > 1, "the statement has one sheet only"
    texts = [sheet.extract_text() for sheet in sheets]
    for number, (sheet, text) in enumerate(zip(sheets, texts)):
        assert sheet.mediabox.width > sheet.mediabox.height, "A4 across"
        assert "Change" in text and "Balance" in text, f"sheet {number} has no header: {text}"
    whole = "\n".join(texts)
    assert OWNER in texts[0] and wallet in whole
    shown = re.sub(r"[\s,]", "", whole)
    for entry in entries:
        after = Decimal(entry["after"]["balance"])
        assert f"{after:.10f}" in shown, entry
    assert f"{closing['balance']:.10f}" in re.sub(r"[\s,]", "", texts[-1]), texts[-1]
