"""Opens the files of an export with one tool after another. Each function returns the rows of a file and its exact sums, by the
tool's own arithmetic where that is decimal."""

import csv
import json
import pathlib
import shutil
import subprocess
import xml.etree.ElementTree
from decimal import Decimal

import duckdb
import pandas
import pyarrow
import pyarrow.compute
import pyarrow.parquet

# The type of every amount in Parquet.
DECIMAL = pyarrow.decimal128(38, 10)


def python_csv(file, names):
    with open(file, newline="", encoding="utf-8") as text:
        rows = list(csv.DictReader(text, strict=True))
    return len(rows), {name: sum((Decimal(row[name]) for row in rows), Decimal(0)) for name in names}


def python_ndjson(file, names):
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert all(isinstance(row[name], str) for row in rows for name in names), "an amount is no string"
    return len(rows), {name: sum((Decimal(row[name]) for row in rows), Decimal(0)) for name in names}


def pandas_csv(file, names):
    frame = pandas.read_csv(file, dtype=str, keep_default_na=False)
    return len(frame), {name: sum(frame[name].map(Decimal), Decimal(0)) for name in names}


def pandas_parquet(file, names):
    frame = pandas.read_parquet(file)
    assert all(isinstance(value, Decimal) for name in names for value in frame[name]), "an amount is no Decimal"
    return len(frame), {name: sum(frame[name], Decimal(0)) for name in names}


def pandas_ndjson(file, names):
    if file.stat().st_size == 0:
        return 0, dict.fromkeys(names, Decimal(0))
    frame = pandas.read_json(file, lines=True, dtype=False, convert_dates=False)
    return len(frame), {name: sum(frame[name].map(Decimal), Decimal(0)) for name in names}


def pyarrow_parquet(file, names):
    table = pyarrow.parquet.read_table(file)
    for field in table.schema:
        if field.name in names:
            assert field.type == DECIMAL, f"{field.name} is {field.type}"
        assert not pyarrow.types.is_floating(field.type), f"{field.name} is {field.type}"
        if pyarrow.types.is_timestamp(field.type):
            assert (field.type.unit, field.type.tz) == ("us", "UTC"), f"{field.name} is {field.type}"
    sums = {name: pyarrow.compute.sum(table[name]).as_py() or Decimal(0) for name in names}
    return table.num_rows, sums


def duckdb_of(relation, names):
    columns = ", ".join(f'coalesce(sum(CAST("{name}" AS DECIMAL(38,10))), 0)' for name in names) or "NULL"
    with duckdb.connect() as database:
        rows, *sums = database.execute(f"SELECT count(*), {columns} FROM {relation}").fetchone()
    return rows, {name: Decimal(value) for name, value in zip(names, sums)}


def duckdb_parquet(file, names):
    with duckdb.connect() as database:
        described = database.execute(f"DESCRIBE SELECT * FROM '{file}'").fetchall()
    types = {name: kind for name, kind, *_ in described}
    assert all(types[name] == "DECIMAL(38,10)" for name in names), types
    assert all(kind != "DOUBLE" for kind in types.values()), types
    return duckdb_of(f"read_parquet('{file}')", names)


def duckdb_csv(file, names):
    types = ", ".join(f"'{name}': 'DECIMAL(38,10)'" for name in names)
    return duckdb_of(f"read_csv('{file}', header = true, delim = ',', quote = '\"', types = {{{types}}})", names)


def duckdb_ndjson(file, names):
    if file.stat().st_size == 0:
        return 0, dict.fromkeys(names, Decimal(0))
    return duckdb_of(f"read_ndjson('{file}')", names)


READERS = {
    "csv": [python_csv, pandas_csv, duckdb_csv],
    "focus": [python_csv, pandas_csv, duckdb_csv],
    "parquet": [pandas_parquet, pyarrow_parquet, duckdb_parquet],
    "ndjson": [python_ndjson, pandas_ndjson, duckdb_ndjson],
}

OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def libreoffice():
    """LibreOffice's command line, if it is installed."""
    return shutil.which("soffice") or shutil.which("libreoffice")


def libreoffice_cells(file, folder):
    """The cells of a CSV file as LibreOffice opens it by default, each as (value or text, formula)."""
    folder = pathlib.Path(folder)
    profile = f"-env:UserInstallation=file://{folder / 'profile'}"
    # Comma, double quote, UTF-8, from the first line, cells as LibreOffice takes them, English.
    reading = "Text - txt - csv (StarCalc):44,34,76,1,,1033,false,true,false"
    done = subprocess.run(
        [libreoffice(), profile, "--headless", f"--infilter={reading}", "--convert-to", "fods", "--outdir", str(folder), str(file)],
        capture_output=True, text=True, timeout=300,
    )
    converted = folder / (file.stem + ".fods")
    assert converted.exists(), f"LibreOffice: {done.stdout} {done.stderr}"
    for row in xml.etree.ElementTree.parse(converted).getroot().iter(f"{TABLE}table-row"):
        cells = []
        for cell in row.iter(f"{TABLE}table-cell"):
            text = "\n".join("".join(line.itertext()) for line in cell.iter(f"{TEXT}p"))
            value = cell.get(f"{OFFICE}value", text), cell.get(f"{TABLE}formula")
            repeated = int(cell.get(f"{TABLE}number-columns-repeated", "1"))
            cells += [value] * (repeated if repeated < 200 else 0)
        repeated = int(row.get(f"{TABLE}number-rows-repeated", "1"))
        if any(text for text, _ in cells):
            yield from [cells] * repeated
