"""Judges a comparison of the built-in catalogue with what two public ones agree on.

`check.py CATALOGUE COMPARISON`: the built-in catalogue, and what `farthing prices compare --json` says of it and the other
file. The last line has cargo's format."""

import json
import pathlib
import sys

# The providers whose prices were taken by convert.py, with the number of their models. The prices of the others were taken before,
# and convert.py leaves some of these out.
PROVIDERS = {"cerebras": 6, "cohere": 5, "fireworks": 37, "moonshot": 11, "together": 26, "zai": 1}


def wrong(provider, models, comparison):
    """What is wrong with the prices of a provider; None if both public catalogues have each of them."""
    if len(models) != PROVIDERS[provider]:
        return f"the catalogue has {len(models)} models, and {PROVIDERS[provider]} are expected"
    differ = {
        kind: [row for row in comparison[kind] if row["provider"] == provider]
        for kind in ("different", "only_in_first", "only_in_second")
    }
    return json.dumps(differ, indent=1) if any(differ.values()) else None


def main(catalogue, comparison):
    models = json.loads(pathlib.Path(catalogue).read_text())["models"]
    comparison = json.loads(pathlib.Path(comparison).read_text())
    failed = 0
    for provider in PROVIDERS:
        of_provider = [model for model in models if model["provider"] == provider]
        problem = wrong(provider, of_provider, comparison)
        print(f"test two public catalogues agree on the prices of {provider} ... {'FAILED' if problem else 'ok'}")
        if problem:
            print(problem)
        failed += bool(problem)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(PROVIDERS) - failed} passed; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
