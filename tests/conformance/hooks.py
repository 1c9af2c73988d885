"""Which keys each call of the conformance run carries, and what it knows of things under two names;
`tests/conformance/run` sets the variables."""

import itertools
import os
import re

import schemathesis

# 1,000 calls per minute and key: several keys of the one merchant take turns, so that no time is spent waiting.
KEYS = itertools.cycle(os.environ["SECRET_KEYS"].split())

# Keys that may be deleted; those in turn stay, or the run would end in 401.
SPARE_KEY_IDS = itertools.cycle(os.environ["SPARE_KEY_IDS"].split())


@schemathesis.auth(refresh_interval=None, retry_on=[])
class SecretKey:
    def get(self, case, context):
        return next(KEYS)

    def set(self, case, key, context):
        case.headers["Authorization"] = f"Bearer {key}"


# Idempotency keys as the document has them, and those that were sent. The answer to one that is sent again tells of a
# thing that may have been deleted since: schemathesis, which knows nothing of that, would miss it.
GOOD_IDEMPOTENCY_KEY = re.compile(r"[\t -~]{0,254}[!-~][\t -~]{0,254}")
SENT = set()
FRESH = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    key = case.headers.get("Idempotency-Key")
    if isinstance(key, str) and GOOD_IDEMPOTENCY_KEY.fullmatch(key) and len(key) <= 255:
        # Blanks around a header's value are no part of it.
        if key.strip() in SENT:
            case.headers["Idempotency-Key"] = f"fresh-{next(FRESH)}"
        SENT.add(key.strip())
    if case.method == "DELETE" and case.operation.path == "/secret_keys/{id}":
        if str(case.path_parameters["id"]).startswith("key_"):
            case.path_parameters["id"] = next(SPARE_KEY_IDS)


# What stands behind a path, by the prefix of its ids, and what is answered where it is not there. schemathesis's own check
# of this, ensure_resource_availability, is off where a thing has two paths: it does not know that what was made at
# /products may be deleted at /meters.
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
# Ids by the merchant's own names of customers and meters, which stand wherever the ids do.
OWN_NAMES = {}


def named(case):
    """The id of what the path of a call names, where it is of the kind that stands behind that path, and what is
    answered where that is not there."""
    for value in map(str, (case.path_parameters or {}).values()):
        value = OWN_NAMES.get(value, value)
        for prefix, (folders, missing) in KINDS.items():
            if value.startswith(prefix) and any(f"/{folder}/{{" in case.operation.path for folder in folders):
                return value, missing
    return None, ()


@schemathesis.hook
def after_call(context, case, response):
    if case.method == "POST" and response.status_code == 201:
        made = response.json()
        CREATED.update(value for name, value in made.items() if name.endswith("_id"))
        for own, id in (("reference_id", "customer_id"), ("meter_slug", "meter_id")):
            if own in made and id in made:
                OWN_NAMES[made[own]] = made[id]
    if case.method == "DELETE" and response.status_code == 200:
        DELETED.add(named(case)[0])


@schemathesis.check
def what_was_created_is_there_until_it_is_deleted(ctx, response, case):
    name, missing = named(case)
    if name is None:
        return
    is_missing = response.status_code == 404 and response.json()["error"]["code"] in missing
    if is_missing and name in CREATED and name not in DELETED:
        raise AssertionError(f"{name} was created and not deleted, and is not there")
    if response.status_code == 200 and case.method == "GET" and name in DELETED:
        raise AssertionError(f"{name} was deleted and is still there")
