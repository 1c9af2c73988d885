"""The tables of docs/clients.md: written from what passed, or compared with it."""

import pathlib
import re

from clients import CLIENTS, ROUTE_TITLES, ROUTES, SCENARIOS, TITLES

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "clients.md"

YES, NO = "✓", ""


def made(route, passed):
    """The table of a route. `passed` has a client's name and a scenario for each cell with a green test."""
    heads = [f"| client | {' | '.join(TITLES[scenario] for scenario in SCENARIOS)} |"]
    heads.append("|---" * (len(SCENARIOS) + 1) + "|")
    for client in CLIENTS:
        cells = [YES if (route, client.name, scenario) in passed else NO for scenario in SCENARIOS]
        heads.append(f"| {client.name} | {' | '.join(cells)} |")
    return "\n".join(heads)


def place(route):
    return re.compile(rf"(<!-- table: {route} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def differences(passed):
    """The routes whose table on the page is not what passed."""
    page = PAGE.read_text()
    found = {route: place(route).search(page) for route in ROUTES}
    return [route for route, table in found.items() if not table or table[2] != made(route, passed)]


def write(passed):
    """Writes the tables into the page, those of new routes at its end."""
    page = PAGE.read_text()
    for route in ROUTES:
        table = made(route, passed)
        if not place(route).search(page):
            page += f"\n### {ROUTE_TITLES[route]}\n\n<!-- table: {route} -->\n\n<!-- end -->\n"
        page = place(route).sub(lambda found, table=table: found[1] + table + found[3], page)
    PAGE.write_text(page)
