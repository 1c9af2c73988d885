"""Writes what two public catalogues list as two catalogue files of ours. See README.md beside this file.

usage: convert.py DATE GENAI_FILE LITELLM_FILE, with genai-prices and litellm installed
"""

import importlib.metadata
import json
import pathlib
import re
import sys
from datetime import datetime, timezone
from decimal import Decimal

from genai_prices import data
from genai_prices.types import TieredPrices

# Our name, genai-prices' name, litellm's name, and the prefix of its models.
PROVIDERS = [
    ("anthropic", "anthropic", "anthropic", ""),
    ("cerebras", "cerebras", "cerebras", "cerebras/"),
    ("cohere", "cohere", "cohere_chat", ""),
    ("cohere", "cohere", "cohere", ""),
    ("deepseek", "deepseek", "deepseek", "deepseek/"),
    ("fireworks", "fireworks", "fireworks_ai", "fireworks_ai/"),
    ("google", "google", "gemini", "gemini/"),
    ("groq", "groq", "groq", "groq/"),
    ("mistral", "mistral", "mistral", "mistral/"),
    ("moonshot", "moonshotai", "moonshot", "moonshot/"),
    ("openai", "openai", "openai", ""),
    ("openrouter", "openrouter", "openrouter", "openrouter/"),
    ("together", "together", "together_ai", "together_ai/"),
    ("xai", "x-ai", "xai", "xai/"),
    ("zai", "zai", "zai", "zai/"),
]

# Kinds of models that are billed by tokens alone.
MODES = {"chat", "completion", "responses", "embedding"}

GENAI_RATES = {
    "input_mtok": "input_per_1m",
    "output_mtok": "output_per_1m",
    "cache_read_mtok": "cache_read_per_1m",
    "cache_write_mtok": "cache_write_per_1m",
}

LITELLM_RATES = {
    "input_cost_per_token": "input_per_1m",
    "output_cost_per_token": "output_per_1m",
    "cache_read_input_token_cost": "cache_read_per_1m",
    "cache_creation_input_token_cost": "cache_write_per_1m",
}

# Prices of features that calls on managed keys may not use, or that are other ways to buy the same.
IGNORED = re.compile(
    r"_batches|_priority|_flex|_above_1hr|_above_12hr|_scale|^search_context|cache_write_1h|web_search|_pt$"
)


def text(number):
    """A decimal string without an exponent and without zeros at its end; None if it has more than ten digits."""
    shown = format(Decimal(number).normalize(), "f")
    return shown if len(shown.partition(".")[2]) <= 10 else None


def genai(model, when, mode):
    """The entry of a model of genai-prices; None if it has prices that a catalogue file cannot say."""
    prices, base, above = model.get_prices(when), {}, {}
    for name, price in vars(prices).items():
        if price is None or IGNORED.search(name):
            continue
        rate = GENAI_RATES.get(name)
        if rate is None:
            return None
        if isinstance(price, TieredPrices):
            base[rate] = text(price.base)
            for tier in price.tiers:
                above.setdefault(tier.start, {})[rate] = text(tier.price)
        else:
            base[rate] = text(price)
    return finished(base, above, mode)


def litellm(model):
    """The entry of a model of litellm's map; None if it has prices that a catalogue file cannot say."""
    base, above = {}, {}
    for name, price in model.items():
        if "cost" not in name or IGNORED.search(name) or not isinstance(price, (int, Decimal)):
            continue
        step = re.fullmatch(r"(.*)_above_(\d+)k_tokens", name)
        rate = LITELLM_RATES.get(step.group(1) if step else name)
        if rate is None:
            if price != 0:
                return None
            continue
        into = above.setdefault(int(step.group(2)) * 1000, {}) if step else base
        into[rate] = text(Decimal(price) * 1_000_000)
    entry = finished(base, above, model["mode"])
    if entry is not None:
        for name in ["max_output_tokens", "max_input_tokens"]:
            if isinstance(model.get(name), int) and model[name] > 0:
                entry[name] = model[name]
    return entry


def finished(base, above, mode):
    rates = [*base.values(), *(rate for step in above.values() for rate in step.values())]
    if not base or None in rates or any(Decimal(rate) < 0 for rate in rates):
        return None
    # A rate of zero may mean that nobody has filled it in. Embeddings have no output.
    if mode == "embedding":
        base.pop("output_per_1m", None)
    needed = ["input_per_1m"] if mode == "embedding" else ["input_per_1m", "output_per_1m"]
    if any(Decimal(base.get(rate, "0")) == 0 for rate in needed):
        return None
    entry = {rate: base[rate] for rate in GENAI_RATES.values() if rate in base}
    if above:
        entry["above"] = [{"input_tokens": start, **above[start]} for start in sorted(above)]
    return entry


def main():
    day, genai_file, litellm_file = sys.argv[1:]
    when = datetime.fromisoformat(day).replace(tzinfo=timezone.utc)
    package = importlib.metadata.distribution("litellm").locate_file("litellm")
    listed = pathlib.Path(package, "model_prices_and_context_window_backup.json").read_text()
    listed = json.loads(listed, parse_float=Decimal)
    providers = {provider.id: provider for provider in data.providers}
    first, second = {}, {}
    for ours, theirs, litellms, prefix in PROVIDERS:
        for name, model in listed.items():
            if model.get("litellm_provider") != litellms or not name.startswith(prefix):
                continue
            name = name.removeprefix(prefix)
            found = providers[theirs].find_model(name)
            if found is None or model.get("mode") not in MODES or name.startswith("ft:"):
                continue
            for models, entry in [(first, genai(found, when, model["mode"])), (second, litellm(model))]:
                if entry is not None:
                    models[ours, name] = {"provider": ours, "model": name, **entry}
    for path, package, models in [(genai_file, "genai-prices", first), (litellm_file, "litellm", second)]:
        source = f"{package} {importlib.metadata.version(package)}"
        licence = "MIT"
        lines = ",\n".join(json.dumps(models[key]) for key in sorted(models))
        head = f'{{"source": "{source}", "licence": "{licence}", "taken": "{day}", "models": [\n'
        pathlib.Path(path).write_text(f"{head}{lines}\n]}}\n")


main()
