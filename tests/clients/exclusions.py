"""What docs/clients.md says that a client cannot do, tried. If one reaches the provider one day, the page must say so."""

from clients import Client

# The clients that forward excludes.
EXCLUDED = [
    Client("boto3", "frameworks", "boto3_client", "bedrock", ["chat"], provider="bedrock", url_in_path=True),
]


def wrong(job, result, journal):
    """What is wrong with an exclusion; None if the gateway found no credential in the call that the client made."""
    if job["id"] in journal:
        return f"it reaches the provider: {journal[job['id']]}"
    raised = result.get("raised", "")
    return None if "401" in raised else f"expected the gateway's 401: {result}"
