"""Draws the panels of a Grafana dashboard from answers of Prometheus: titles, legends, units and layout are the
dashboard's. A stand-in for Grafana, which no package registry has.

usage: draw.py DASHBOARD ANSWERS PICTURE

ANSWERS is a JSON object: for each panel and target, such as "4/A", the result of a range query. Exit code 3: there is no
matplotlib.
"""

import json
import re
import sys
from datetime import datetime

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.dates import DateFormatter
    from matplotlib.ticker import FuncFormatter
except ImportError:
    sys.exit(3)

COLUMNS = 24  # of Grafana's grid


def scaled(value, steps, unit):
    for factor, prefix in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value / steps[-1][0]:.4g} {steps[-1][1]}{unit}" if value else "0"


def shown(unit):
    """How Grafana writes a value of this unit."""
    seconds = [(3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")]
    plain = [(1e9, "Bil"), (1e6, "Mil"), (1e3, "K"), (1, "")]
    binary = [(2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"), (1, "")]
    return {
        "s": lambda value, _: scaled(value, seconds, ""),
        "bytes": lambda value, _: scaled(value, binary, "B"),
        "reqps": lambda value, _: f"{value:.4g} req/s" if value else "0",
        "ops": lambda value, _: f"{value:.4g} ops/s" if value else "0",
        "percentunit": lambda value, _: f"{value * 100:.4g} %",
        "none": lambda value, _: f"{value:.4g}",
        "short": lambda value, _: scaled(value, plain, "") if abs(value) >= 1 else f"{value:.4g}",
    }[unit]


def legend(form, labels):
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), form)


def draw(panel, answers, axes):
    defaults = panel["fieldConfig"]["defaults"]
    lines = 0
    for target in panel["targets"]:
        for series in answers[f"{panel['id']}/{target['refId']}"]:
            points = [(datetime.fromtimestamp(at), float(value)) for at, value in series["values"]]
            times, values = zip(*points)
            axes.plot(times, values, linewidth=1, marker=".", markersize=2, label=legend(target["legendFormat"], series["metric"]))
            lines += 1
    axes.set_title(panel["title"], loc="left", fontsize=9, fontweight="bold")
    axes.yaxis.set_major_formatter(FuncFormatter(shown(defaults["unit"])))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.tick_params(labelsize=6)
    axes.grid(linewidth=0.3)
    if defaults.get("min") is not None:
        axes.set_ylim(bottom=defaults["min"])
    if defaults.get("decimals") == 0:
        axes.yaxis.get_major_locator().set_params(integer=True)
    if lines:
        axes.legend(fontsize=5, loc="upper left", bbox_to_anchor=(0, -0.12), ncol=4, frameon=False)
    else:
        axes.text(0.5, 0.5, "No data", ha="center", transform=axes.transAxes)


def main():
    dashboard, answers, picture = sys.argv[1:]
    with open(dashboard, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    with open(answers, encoding="utf-8") as file:
        answers = json.load(file)
    heights = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(COLUMNS * 0.75, heights * 0.42), dpi=110)
    for panel in panels:
        place = panel["gridPos"]
        x, y = (place["x"] + 0.9) / COLUMNS, 1 - (place["y"] + place["h"] - 2.4) / heights
        axes = figure.add_axes((x, y, (place["w"] - 1.4) / COLUMNS, (place["h"] - 3.4) / heights))
        draw(panel, answers, axes)
    figure.savefig(picture)


main()
