"""Hooks of schemathesis: the secret keys of the calls, fresh idempotency keys, and a check that resources exist until
they are deleted. `tests/conformance/run` sets the environment variables."""

import itertools
import os
import re

import schemathesis

# A key may make 1,000 calls a minute. Several keys of one merchant are used in turn, so that the run never waits.
KEYS = itertools.cycle(os.environ["SECRET_KEYS"].split())

# Keys that DELETE calls may delete. If it deleted a key in KEYS, later calls would fail with 401.
SPARE_KEY_IDS = itertools.cycle(os.environ["SPARE_KEY_IDS"].split())


@schemathesis.auth(refresh_interval=None, retry_on=[])
class SecretKey:
    def get(self, case, context):
        return next(KEYS)

    def set(self, case, key, context):
        case.headers["Authorization"] = f"Bearer {key}"


# A repeated idempotency key is replaced by a fresh one. Its stored response may name a resource that has been deleted
# since, which schemathesis would report as missing.
VALID_IDEMPOTENCY_KEY = re.compile(r"[\t -~]{0,254}[!-~][\t -~]{0,254}")
SENT = set()
FRESH = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and VALID_IDEMPOTENCY_KEY.fullmatch(key) and len(key) <= 255:
        # Whitespace around a header value is not part of it.
        if key.strip() in SENT:
            case.headers["Idempotency-Key"] = f"fresh-{next(FRESH)}"
        SENT.add(key.strip())
    if case.method == "DELETE" and case.operation.path == "/secret_keys/{id}":
        if str(case.path_parameters["id"]).startswith("key_"):
            case.path_parameters["id"] = next(SPARE_KEY_IDS)


# For each prefix of ids: the paths of its resources and the error codes of a missing one. The check below replaces
# schemathesis's ensure_resource_availability, which does not know that a meter created at /products may be deleted at
# /meters.
KINDS = {
    "con_": (("customers", "connections"), ("customer_not_found", "connection_not_found")),
    "prd_": (("meters", "products"), ("meter_not_found",)),
    "sk_": (("spend_keys",), ("spend_key_not_found",)),
    "req_": (("requests",), ("request_not_found",)),
    "sc_": (("plans", "subscription_configs", "subscription-configs"), ("plan_not_found",)),
    "cs_": (("checkout_sessions",), ("checkout_session_not_found",)),
    "wh_": (("webhooks",), ("webhook_not_found",)),
}
CREATED = set()
DELETED = set()
# Ids by reference_id (customers) and slug (meters). Both are accepted in place of the id.
ALIASES = {}


def resource(case):
    """Returns the id of the resource in the path of a call and the error codes of a missing one. The id is None if its
    prefix does not belong to the path."""
    for value in map(str, (case.path_parameters or {}).values()):
        value = ALIASES.get(value, value)
        for prefix, (folders, missing) in KINDS.items():
            if value.startswith(prefix) and any(f"/{folder}/{{" in case.operation.path for folder in folders):
                return value, missing
    return None, ()


def name(resource):
    """Notes what the resource is called now. It may have been called otherwise before."""
    for alias, id in (("reference_id", "customer_id"), ("meter_slug", "meter_id")):
        if resource.get(id) is None or alias not in resource:
            continue
        for old in [old for old, named in ALIASES.items() if named == resource[id]]:
            del ALIASES[old]
        ALIASES[resource[alias]] = resource[id]


@schemathesis.hook
def after_call(context, case, response):
    if case.method == "POST" and response.status_code == 201:
        created = response.json()
        CREATED.update(value for name, value in created.items() if name.endswith("_id"))
        name(created)
    if case.method == "PATCH" and response.status_code == 200:
        name(response.json())
    if case.method == "DELETE" and response.status_code == 200:
        DELETED.add(resource(case)[0])


@schemathesis.check
def a_created_resource_exists_until_it_is_deleted(ctx, response, case):
    id, missing = resource(case)
    if id is None:
        return
    is_missing = response.status_code == 404 and response.json()["error"]["code"] in missing
    if is_missing and id in CREATED and id not in DELETED:
        raise AssertionError(f"{id} was created and not deleted, but is missing")
    if response.status_code == 200 and case.method == "GET" and id in DELETED:
        raise AssertionError(f"{id} was deleted, but still exists")
