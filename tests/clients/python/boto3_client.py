"""The package `boto3`, which docs/clients.md excludes: it signs, and puts its path before the query of the base URL."""

import boto3
from botocore.config import Config


def connect(job):
    return boto3.client(
        "bedrock-runtime", region_name="eu-west-1", endpoint_url=job.base_url, aws_access_key_id=job.api_key,
        aws_secret_access_key=job.api_key, config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
    )


def chat(job):
    messages = [{"role": "user", "content": [{"text": f"Say hello {job.prompt}"}]}]
    answer = connect(job).converse(modelId=job.model, messages=messages)
    return {"text": answer["output"]["message"]["content"][0]["text"]}
