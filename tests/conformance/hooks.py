"""Which keys each call of the conformance run carries; `tests/conformance/run` sets the variables."""

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
        if key in SENT:
            case.headers["Idempotency-Key"] = f"fresh-{next(FRESH)}"
        SENT.add(key)
    if case.method == "DELETE" and case.operation.path == "/secret_keys/{id}":
        if str(case.path_parameters["id"]).startswith("key_"):
            case.path_parameters["id"] = next(SPARE_KEY_IDS)
