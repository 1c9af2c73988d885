"""The tables of docs/clients.md: written from what passed, or compared with it."""

import pathlib
import re

from clients import (
    CLIENTS, CLIENTS_OF_OTHERS, ENDPOINTS_OF_OTHERS, ENDPOINTS_OF_SCENARIOS, OTHERS, ROUTE_TITLES, ROUTES, SCENARIOS, TITLES,
    endpoint_of, provider_of,
)

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "clients.md"

PROVIDERS_PAGE = PAGE.with_name("providers.md")

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


def documented_endpoints():
    """The endpoints of each provider in the table of docs/providers.md, which a test of the gateway keeps."""
    written = re.search(r"<!-- table: provider_table.rs, endpoints -->\n(.*?)\n\n", PROVIDERS_PAGE.read_text(), re.DOTALL)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in written[1].splitlines()]
    heads, rows = rows[0], rows[2:]
    return {row[0]: {head for head, cell in zip(heads[1:], row[1:]) if cell} for row in rows}


def by_provider(others):
    """The table of the other providers. A cell names the clients that passed all scenarios of the endpoint."""
    lines = [f"| provider | {' | '.join(ENDPOINTS_OF_OTHERS)} |", "|---" * (len(ENDPOINTS_OF_OTHERS) + 1) + "|"]
    for provider in OTHERS:
        cells = []
        for endpoint, (_, scenarios) in ENDPOINTS_OF_OTHERS.items():
            did = lambda name: all((provider, endpoint, name, scenario) in others for scenario in scenarios)  # noqa: E731
            cells.append(", ".join(name for name in CLIENTS_OF_OTHERS if did(name)))
        lines.append(f"| {provider} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables(passed, others):
    """All tables by their names."""
    routes = {route: made(route, passed) for route in ROUTES}
    return {"endpoints": by_endpoint(passed), "providers": by_provider(others), **routes}


def place(name):
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def differences(passed, others):
    """The names of the tables on the page that are not what passed."""
    page = PAGE.read_text()
    found = {name: (place(name).search(page), table) for name, table in tables(passed, others).items()}
    return [name for name, (written, table) in found.items() if not written or written[2] != table]


def write(passed, others):
    """Writes the tables into the page, those of new routes at its end."""
    page = PAGE.read_text()
    for name, table in tables(passed, others).items():
        if not place(name).search(page):
            page += f"\n### {ROUTE_TITLES.get(name, name)}\n\n<!-- table: {name} -->\n\n<!-- end -->\n"
        page = place(name).sub(lambda found, table=table: found[1] + table + found[3], page)
    PAGE.write_text(page)
