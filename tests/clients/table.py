"""The tables of docs/clients.md: written from what passed, or compared with it."""

import pathlib
import re

from clients import CLIENTS, ENDPOINTS_OF_SCENARIOS, ROUTE_TITLES, ROUTES, SCENARIOS, TITLES, endpoint_of, provider_of

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


def by_endpoint(passed):
    """The table of clients and endpoints. A cell names the providers that answered a scenario that passed."""
    lines = [f"| client | {' | '.join(ENDPOINTS_OF_SCENARIOS)} |", "|---" * (len(ENDPOINTS_OF_SCENARIOS) + 1) + "|"]
    for client in CLIENTS:
        reached = {
            (endpoint_of(client, scenario), provider_of(client, route))
            for route, name, scenario in passed
            if name == client.name
        }
        cells = [
            ", ".join(sorted(provider for of, provider in reached if of == endpoint))
            for endpoint in ENDPOINTS_OF_SCENARIOS
        ]
        lines.append(f"| {client.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables(passed):
    """All tables by their names."""
    return {"endpoints": by_endpoint(passed), **{route: made(route, passed) for route in ROUTES}}


def place(name):
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def differences(passed):
    """The names of the tables on the page that are not what passed."""
    page = PAGE.read_text()
    found = {name: (place(name).search(page), table) for name, table in tables(passed).items()}
    return [name for name, (written, table) in found.items() if not written or written[2] != table]


def write(passed):
    """Writes the tables into the page, those of new routes at its end."""
    page = PAGE.read_text()
    for name, table in tables(passed).items():
        if not place(name).search(page):
            page += f"\n### {ROUTE_TITLES.get(name, name)}\n\n<!-- table: {name} -->\n\n<!-- end -->\n"
        page = place(name).sub(lambda found, table=table: found[1] + table + found[3], page)
    PAGE.write_text(page)
