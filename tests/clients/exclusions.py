"""What docs/clients.md says that a client cannot do, tried. If one reaches the provider one day, the page must say so."""

from clients import CLIENTS, Client

# The clients that forward excludes.
EXCLUDED = [
    *(client for client in CLIENTS if client.name == "google-genai (Python)"),
    Client("boto3", "frameworks", "boto3_client", "bedrock", ["chat"], provider="bedrock"),
]


def wrong(job, result, journal):
    """What is wrong with an exclusion; None if the gateway refused the path that the client made."""
    if job["id"] in journal:
        return f"it reaches the provider: {journal[job['id']]}"
    raised = result.get("raised", "")
    return None if "404" in raised else f"expected the gateway's 404: {result}"
