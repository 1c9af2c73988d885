"""Checks a CSV file against version 1.2 of FOCUS, the FinOps Open Cost and Usage Specification.

`focus-1.2.json` has the columns of the specification with level, nullability, type and allowed values. The rules between columns
are written out below, each after the sentence of the specification that it checks."""

import csv
import datetime
import json
import pathlib
import re
from decimal import Decimal

SPECIFICATION = json.loads((pathlib.Path(__file__).resolve().parent / "focus-1.2.json").read_text())
COLUMNS = SPECIFICATION["columns"]

# NumericFormat: no sign of a positive value, no commas, E notation allowed.
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?")
# DateTimeFormat: YYYY-MM-DDTHH:mm:ssZ.
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
# CurrencyFormat: ISO 4217.
CURRENCIES = ["USD"]
# UnitFormat: plural units, with a capital; Characters are a count-based unit of their own.
UNITS = ["Tokens", "Characters", "Seconds", "Requests"]


def time_of(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def header_errors(header):
    """What is wrong with the columns."""
    focus = [name for name in header if not name.startswith("x_")]
    for name, column in COLUMNS.items():
        if column["level"] == "mandatory" and name not in header:
            yield f"{name} MUST be present"
    for name in focus:
        if name not in COLUMNS:
            yield f"{name} is no column of FOCUS, so it MUST be prefixed with x_"
    if header[: len(focus)] != focus:
        yield "all FOCUS columns SHOULD be first"
    for name in header:
        if len(name) > 50 or not re.fullmatch(r"(x_)?[A-Z][A-Za-z0-9]*", name):
            yield f"{name} is not in Pascal case, or longer than 50 characters"
    if len(set(header)) != len(header):
        yield "a column is there twice"


def value_errors(row):
    """What is wrong with each value by itself."""
    for name, text in row.items():
        column = COLUMNS.get(name)
        if column is None:
            continue
        if text == "":
            if not column["nullable"]:
                yield f"{name} MUST NOT be null"
            continue
        if column["type"] == "Decimal" and not NUMBER.fullmatch(text):
            yield f"{name} is no number: {text}"
        if column["type"] == "Date/Time" and not TIME.fullmatch(text):
            yield f"{name} is no time: {text}"
        if "allowed" in column and text not in column["allowed"]:
            yield f"{name} MUST be one of the allowed values: {text}"
        if text.strip() != text or text in ("Not Applicable", "N/A", "null", "None"):
            yield f"{name} is a placeholder, or has blanks around it: {text!r}"


def row_errors(row):
    """What is wrong between the values."""
    given = {name: text for name, text in row.items() if text != ""}

    def both_or_none(one, other):
        if (one in given) != (other in given):
            yield f"{other} MUST be null when {one} is null, and MUST NOT be null otherwise"

    if row["BillingCurrency"] not in CURRENCIES:
        yield "BillingCurrency is no code of ISO 4217"
    for pair in [("ConsumedQuantity", "ConsumedUnit"), ("PricingQuantity", "PricingUnit"), ("ResourceId", "ResourceType"),
                 ("SubAccountId", "SubAccountType"), ("SkuId", "SkuMeter")]:
        yield from both_or_none(*pair)
    for unit in ("ConsumedUnit", "PricingUnit"):
        if row[unit] not in UNITS:
            yield f"{unit} is not in UnitFormat: {row[unit]}"
    if row["ChargeCategory"] == "Usage":
        for name in ("ConsumedQuantity", "PricingQuantity", "PricingCategory", "SkuId"):
            if name in row and name not in given:
                yield f'{name} MUST NOT be null when ChargeCategory is "Usage"'
    if row["ChargeCategory"] == "Purchase" and row["ChargeFrequency"] == "Usage-Based":
        yield 'ChargeFrequency MUST NOT be "Usage-Based" when ChargeCategory is "Purchase"'
    # The product of unit price and PricingQuantity MUST match the cost; without a unit price it MUST match the BilledCost.
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        if price in given:
            expected = Decimal(given[price]) * Decimal(row["PricingQuantity"])
        else:
            expected = Decimal(row["BilledCost"])
        if Decimal(row[cost]) != expected:
            yield f"{cost} is {row[cost]}, it MUST be {expected}"
    start, end = time_of(row["ChargePeriodStart"]), time_of(row["ChargePeriodEnd"])
    first, last = time_of(row["BillingPeriodStart"]), time_of(row["BillingPeriodEnd"])
    if not first <= start < end <= last:
        yield "the charge period is empty, or not within the billing period"
    # ServiceSubcategory MUST have one and only one parent ServiceCategory.
    if COLUMNS["ServiceSubcategory"]["allowed"].get(row["ServiceSubcategory"]) != row["ServiceCategory"]:
        yield "ServiceSubcategory is not of the ServiceCategory"
    # KeyValueFormat: an object with unique keys whose values are no objects and no arrays.
    pairs = json.loads(row["Tags"], object_pairs_hook=lambda pairs: pairs) if "Tags" in given else []
    if len({key for key, _ in pairs}) != len(pairs) or any(isinstance(value, list) for _, value in pairs):
        yield f"Tags is not in KeyValueFormat: {row['Tags']}"


def errors(file):
    """What is wrong with a file, and its rows."""
    with open(file, newline="", encoding="utf-8") as text:
        reader = csv.DictReader(text, strict=True)
        found, rows = list(header_errors(reader.fieldnames)), list(reader)
    for number, row in enumerate(rows, 1):
        wrong = list(value_errors(row)) or list(row_errors(row))
        found += [f"row {number}: {error}" for error in wrong]
    return found, rows
