"""The package `openai` with its client for Azure, which sends its key in `api-key` and the model as a deployment in the
path."""

import openai_client
from openai import AzureOpenAI
from openai_client import *  # noqa: F403  the scenarios

API_VERSION = "2024-10-21"


def connect(job):
    return AzureOpenAI(
        base_url=job.base_url, api_key=job.api_key, api_version=API_VERSION, max_retries=0, timeout=30
    )


# The scenarios connect by this name.
openai_client.connect = connect
