"""The examples of docs/clients.md, run as they stand but for addresses, keys and models. The models that they name must have
a price in the built-in catalogue: a reader calls them on a managed key, and by their names."""

import re
import subprocess

from seen_check import TEXT
from table import PAGE

EXAMPLE = re.compile(r"### ([^\n]+)\n(?:(?!###).)*?<!-- example: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)

# The longest run of an example.
SECONDS = 60

# What stands in an example for each model of the run.
MODELS = {
    "gpt-5.1": "mock-openai", "claude-sonnet-5": "mock-anthropic", "gemini-2.5-flash": "mock-google",
    "command-a-03-2025": "mock-cohere",
}

# A model in an example; litellm and langchain-openai put the provider before it.
MODEL = re.compile(r"\b(?:gpt|claude|gemini|command)-[\w.-]+")


def found():
    """Name, environment and text of each example."""
    return EXAMPLE.findall(PAGE.read_text())


def unpriced(program):
    """What is wrong with the models of the examples; None if the built-in catalogue has all of them."""
    named = {model for _, _, text in found() for model in MODEL.findall(text)}
    if named != set(MODELS):
        return f"the examples name {sorted(named)}, and {sorted(MODELS)} are replaced"
    missing = [
        model for model in sorted(named)
        if subprocess.run([program, "prices", "show", model], capture_output=True, timeout=SECONDS).returncode != 0
    ]
    return f"the built-in catalogue has no {missing}" if missing else None


def run(instance, key, installed, environment, example):
    """What is wrong with an example; None if it prints the mock's text."""
    _, kind, text = example
    for given, used in [
        ("http://127.0.0.1:8080", instance.gateway),
        ("https://api.openai.com", instance.mock["openai"]),
        ("https://api.anthropic.com", instance.mock["anthropic"]),
        ("https://generativelanguage.googleapis.com", instance.mock["google"]),
        ("https://api.COHERE.com", instance.mock["cohere"]),
        ("spk_…", key),
        *MODELS.items(),
    ]:
        text = text.replace(given, used)
    if kind == "node":
        command = ["node", "--input-type=module", "-"]
        folder = installed / "node"
    else:
        command = [str(installed / kind / "bin" / "python"), "-"]
        folder = installed
    done = subprocess.run(
        command, input=text, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    # Some clients print advice before.
    last = done.stdout.strip().rpartition("\n")[2]
    return None if last == TEXT else f"{done.stdout}\n{done.stderr[-2000:]}"
