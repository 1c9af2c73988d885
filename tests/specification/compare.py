"""Compares the answers that the tests saw with the specification: codes.json, endpoints.json and shapes.json beside this
file, which are the project's own copy of it, and with the API document that the gateways served.

Usage: compare.py FOLDER. The folder holds what tests/src/answers.rs recorded."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
METHODS = ("get", "put", "post", "patch", "delete", "head")

# Errors that a path without an operation can get, too.
OF_ANY_PATH = {
    "auth_header_invalid", "auth_header_missing", "body_too_large", "headers_too_large", "ledger_unavailable", "method_not_allowed",
    "rate_limit_exceeded", "route_not_found", "secret_key_invalid", "uri_too_long", "validation_error",
}

SAMPLES = {
    "null": None, "boolean": True, "integer": 1, "number": 1.5, "object": {}, "decimal": "1.0000000000",
    "date-time": "2026-01-01T00:00:00Z", "string": "text",
}


def read(name):
    return json.loads((HERE / name).read_text())


def is_word(shape):
    """Whether a shape is a word of an enumeration."""
    return isinstance(shape, str) and shape.startswith("=")


class Specification:
    """The shapes of the specification."""

    def __init__(self):
        self.shapes = read("shapes.json")
        # What the specification names, and what of it was seen.
        self.named, self.seen = set(), set()
        for name, shape in self.shapes.items():
            self.name_members(name, shape["members"])

    def name_members(self, place, members):
        for member, wanted in members.items():
            at = f"{place}.{member.rstrip('?')}"
            self.named.add(at)
            if isinstance(wanted, list):
                if "or null" in wanted:
                    self.named.add(f"{at} null")
                wanted = wanted[0]
            if isinstance(wanted, dict):
                self.name_members(at, wanted)
                continue
            if wanted.endswith(" or null"):
                self.named.add(f"{at} null")
            if self.is_enumeration(wanted):
                self.named.update(f"{at} {word}" for word in wanted.split("|"))

    def is_enumeration(self, wanted):
        wanted = wanted.removesuffix(" or null")
        return wanted not in SAMPLES and wanted not in self.shapes and not wanted.endswith("_")

    def misfit(self, wanted, shape, at):
        """The first difference of a shape from what is wanted, or None. Members beyond the wanted ones are fine here."""
        if isinstance(wanted, list):
            if shape == "null" and "or null" in wanted:
                self.seen.add(f"{at} null")
                return None
            if not isinstance(shape, list):
                return f"{at} is {shape}, not a list"
            return next(filter(None, (self.misfit(wanted[0], item, at) for item in shape)), None)
        if isinstance(wanted, dict):
            return self.members_misfit(wanted, shape, at)
        if wanted.endswith(" or null"):
            if shape == "null":
                self.seen.add(f"{at} null")
                return None
            wanted = wanted.removesuffix(" or null")
        if wanted in self.shapes:
            return self.resource_misfit(wanted, shape)
        if self.is_enumeration(wanted):
            if not is_word(shape) or shape[1:] not in wanted.split("|"):
                return f"{at} is {shape}, not one of {wanted}"
            self.seen.add(f"{at} {shape[1:]}")
            return None
        fits = {
            "string": isinstance(shape, str) and shape not in ("null", "boolean", "integer", "number"),
            "number": shape in ("integer", "number"),
            "object": shape == "object",
        }.get(wanted, shape == wanted)
        return None if fits else f"{at} is {shape}, not {wanted}"

    def members_misfit(self, wanted, shape, at):
        if not isinstance(shape, dict):
            return f"{at} is {shape}, not an object"
        for member, type_ in wanted.items():
            name = member.rstrip("?")
            place = f"{at}.{name}"
            if name not in shape:
                if not member.endswith("?"):
                    return f"{place} is missing"
                continue
            misfit = self.misfit(type_, shape[name], place)
            if misfit:
                return misfit
            if shape[name] != "null":
                self.seen.add(place)
        return None

    def resource_misfit(self, name, shape):
        resource = self.shapes[name]
        misfit = self.members_misfit(resource["members"], shape, name)
        return misfit or ("of" in resource and self.resource_misfit(resource["of"], shape)) or None

    def answer_misfit(self, name, shape):
        """The same for the body of an answer: a resource, a `Page of` it or a bare `List of` it."""
        kind, _, resource = name.partition(" of ")
        if kind == "Page":
            page = {"data": [resource], "has_more": "boolean", "next_cursor?": "string"}
            return self.members_misfit(page, shape, name)
        return self.misfit([resource], shape, name) if kind == "List" else self.resource_misfit(name, shape)


class Document:
    """The API document, or the union of those of several gateways."""

    def __init__(self, documents):
        self.paths, self.schemas = {}, {}
        for document in documents:
            self.paths.update(document["paths"])
            self.schemas.update(document["components"]["schemas"])
        # Its error codes with their statuses; and what it names, and what of that was seen.
        self.codes, self.named, self.seen = set(), set(), set()
        visited = set()
        for item in self.paths.values():
            for operation in item.values():
                for status, response in operation["responses"].items():
                    self.codes.update((code, int(status)) for code in codes_of(operation, status))
                    if status.startswith("2"):
                        self.name_members(body_schema(response), visited)

    def operation(self, method, path):
        """The path and the operation of a call. Literal segments go before parameters."""
        parts = path.split("/")
        found = []
        for candidate, item in self.paths.items():
            segments = ("/v1" + candidate).split("/")
            if len(segments) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(segments, parts)):
                found.append((sum(a != b for a, b in zip(segments, parts)), candidate, item))
        if not found:
            return None, None
        _, candidate, item = min(found, key=lambda entry: entry[0])
        method = method.lower()
        return candidate, item.get(method) or (item.get("get") if method == "head" else None)

    def resolve(self, schema):
        """The schema without references, and its name if it has one."""
        if "$ref" not in schema:
            return schema, None
        name = schema["$ref"].rsplit("/", 1)[1]
        return self.schemas[name], name

    def parts(self, schema, name, place):
        """The schemas of an object's members, each with its place, and whether it is required."""
        resolved, own = self.resolve(schema)
        # The items of a list's page are written out, but are the resource.
        name = own or name
        place = name or place
        members = {
            member: (part, f"{place}.{member}", member in resolved.get("required", ()))
            for member, part in resolved.get("properties", {}).items()
        }
        for part in resolved.get("allOf", ()):
            members.update(self.parts(part, None, place))
        return members

    def items_of(self, schema, place):
        resource = place.removeprefix("List_").removesuffix(".data")
        name = resource if place == f"List_{resource}.data" and resource in self.schemas else None
        return schema.get("items", {}), name

    def name_members(self, schema, visited, name=None, place=""):
        resolved, own = self.resolve(schema)
        if own in visited:
            return
        visited.add(own or id(resolved))
        place = own or name or place
        for choice in (*resolved.get("oneOf", ()), *resolved.get("anyOf", ())):
            self.name_members(choice, visited, None, place)
        if "items" in resolved:
            items, of = self.items_of(resolved, place)
            if of is None:
                self.name_members(items, visited, None, place)
            else:
                self.name_members({"$ref": f"#/components/schemas/{of}"}, visited)
        if own and "enum" in resolved:
            self.named.update(f"{own} {word}" for word in resolved["enum"])
        for part, at, _ in self.parts(schema, name, place).values():
            self.named.add(at)
            if self.may_be_null(part):
                self.named.add(f"{at} null or absent")
            self.name_members(part, visited, None, at)

    def may_be_null(self, schema):
        resolved, _ = self.resolve(schema)
        types = resolved.get("type", ())
        return "null" in ([types] if isinstance(types, str) else types) or any(
            self.may_be_null(choice) for choice in (*resolved.get("oneOf", ()), *resolved.get("anyOf", ()))
        )

    def misfit(self, schema, shape, seen, name=None, place="body"):
        """The first difference of a shape from a schema, or None. Adds what was seen to `seen`."""
        resolved, own = self.resolve(schema)
        place = own or name or place
        for choices in (resolved.get("oneOf"), resolved.get("anyOf")):
            if choices:
                misfits = []
                for choice in choices:
                    of_choice = set()
                    misfits.append(self.misfit(choice, shape, of_choice, None, place))
                    if misfits[-1] is None:
                        seen |= of_choice
                        break
                else:
                    return misfits[0]
        types = resolved.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(is_of(shape, type_) for type_ in types):
            return f"{place} is {shape}, not {' or '.join(types)}"
        if "enum" in resolved and is_word(shape):
            if shape[1:] not in resolved["enum"]:
                return f"{place} is {shape}, which is not documented"
            if own:
                seen.add(f"{own} {shape[1:]}")
        if resolved.get("format") == "date-time" and isinstance(shape, str) and shape not in ("date-time", "null"):
            return f"{place} is {shape}, not date-time"
        prefix = resolved.get("pattern", "").removeprefix("^").split("[")[0]
        if prefix.endswith("_") and shape != prefix:
            return f"{place} is {shape}, not {prefix}"
        if own == "Amount" and shape != "decimal":
            return f"{place} is {shape}, not decimal"
        if isinstance(shape, list):
            items, of = self.items_of(resolved, place)
            misfits = (self.misfit(items, item, seen, of, place) for item in shape)
            return next(filter(None, misfits), None)
        if isinstance(shape, dict):
            return self.members_misfit(schema, shape, seen, name, place)
        return None

    def members_misfit(self, schema, shape, seen, name, place):
        resolved, _ = self.resolve(schema)
        if "oneOf" in resolved or "anyOf" in resolved:
            return None
        members = self.parts(schema, name, place)
        if not members:
            return None
        for member in shape:
            if member not in members:
                return f"{place}.{member} is not documented"
        for member, (part, at, is_required) in members.items():
            if member not in shape:
                if is_required:
                    return f"{at} is missing"
                seen.add(f"{at} null or absent")
                continue
            misfit = self.misfit(part, shape[member], seen, None, at)
            if misfit:
                return misfit
            seen.add(f"{at} null or absent" if shape[member] == "null" else at)
        return None


def is_of(shape, type_):
    if type_ == "array":
        return isinstance(shape, list)
    if type_ == "object":
        return isinstance(shape, dict) or shape == "object"
    if type_ == "number":
        return shape in ("integer", "number")
    if type_ == "string":
        return isinstance(shape, str) and shape not in ("null", "boolean", "integer", "number", "object")
    return shape == type_


def body_schema(response):
    return response.get("content", {}).get("application/json", {}).get("schema", {})


def codes_of(operation, status):
    """The error codes that the document lists for a status of an operation."""
    schema = body_schema(operation["responses"].get(str(status), {}))
    schema = schema.get("anyOf", [schema])[0]
    if "allOf" not in schema:
        return []
    return schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]


class Comparison:
    """The checks, and which of them failed."""

    def __init__(self, answers, document):
        self.specification, self.document = Specification(), document
        self.codes = {(row["code"], row["status"]) for row in read("codes.json")}
        self.endpoints = read("endpoints.json")
        self.statuses, self.codes_seen, self.wrong = set(), set(), {}
        by_path = {row["endpoint"]: row for row in self.endpoints}
        for answer in answers:
            path, operation = document.operation(answer["method"], answer["path"])
            if answer["code"] is not None:
                self.take_error(answer, path, operation)
            elif answer["path"].startswith("/v1/") and operation is not None:
                self.take_success(answer, path, operation, by_path.get(f"{answer['method']} {path}", {}))
            self.statuses.add((f"{answer['method']} {path}", answer["status"]))
            # So are pages, and single values of a path's parameters.
            self.statuses.add((f"{answer['method']} {answer['path'].removeprefix('/v1')}", answer["status"]))

    def fail(self, what, answer):
        self.wrong.setdefault(what, f"{answer['method']} {answer['path']} {answer['status']}")

    def take_error(self, answer, path, operation):
        code, status = answer["code"], answer["status"]
        self.codes_seen.add((code, status))
        # Single values of a path's parameters are listed as paths of their own.
        for at in (path, answer["path"].removeprefix("/v1")):
            self.codes_seen.add((f"{answer['method']} {at}", code))
        misfit = self.specification.resource_misfit("Error", answer["shape"])
        extra = set(answer["shape"]["error"]) - {"message", "code", "status", "issues"}
        if misfit or extra:
            self.fail(misfit or f"Error.error.{extra.pop()} is not specified", answer)
        specified = {of for named, of in self.codes if named == code}
        if specified and status not in specified:
            self.fail(f"{code} has the status {status}, not {specified.pop()}", answer)
        elif (code, status) not in self.codes | self.document.codes:
            self.fail(f"{status} {code} is neither specified nor documented", answer)
        documented = operation is not None and code in codes_of(operation, status)
        if not documented and code not in OF_ANY_PATH and answer["path"].startswith("/v1"):
            self.fail(f"{status} {code} is not documented for {answer['method']} {path}", answer)

    def take_success(self, answer, path, operation, row):
        status, shape = answer["status"], answer["shape"]
        response = operation["responses"].get(str(status)) or operation["responses"].get("default")
        if response is None:
            self.fail(f"{status} is not documented for {answer['method']} {path}", answer)
            return
        schema = body_schema(response)
        if shape is None or not schema or status >= 300:
            return
        misfit = self.document.misfit(schema, shape, self.document.seen)
        if not misfit and row.get("shape"):
            misfit = self.specification.answer_misfit(row["shape"], shape)
        if misfit:
            self.fail(f"{answer['method']} {path}: {misfit}", answer)

    def missing(self):
        """What was not seen: every check by its name, with whether it was seen."""
        for code, status in sorted(self.codes):
            yield f"code {status} {code}", (code, status) in self.codes_seen
        for row in self.endpoints:
            if self.is_later(row):
                continue
            for status in row["statuses"]:
                yield f"endpoint {row['endpoint']} {status}", was_seen(row["endpoint"], status, self.statuses)
            for code in row.get("codes", ()):
                yield f"endpoint {row['endpoint']} {code}", was_seen(row["endpoint"], code, self.codes_seen)
        for path, item in self.document.paths.items():
            for method in METHODS:
                for status in item.get(method, {}).get("responses", ()):
                    if status.startswith("2"):
                        name = f"{method.upper()} {path}"
                        yield f"operation {name} {status}", (name, int(status)) in self.statuses
        for what in sorted(self.specification.named):
            yield f"specified {what}", what in self.specification.seen
        for what in sorted(self.document.named):
            yield f"documented {what}", what in self.document.seen

    def is_later(self, row):
        """Whether an endpoint of the specification is left to a later change. One in the document is not."""
        return "left_out" in row and row["endpoint"].split(" ")[1] not in self.document.paths


def was_seen(endpoint, answer, seen):
    """Whether an endpoint gave a status or code. Its parameters may have other names than those of the document."""
    pattern = "/".join("{}" if part.startswith("{") else part for part in endpoint.split("/"))
    return (endpoint, answer) in seen or (pattern, answer) in seen


def main(folder):
    answers = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.open()]
    documents = [json.loads(file.read_text()) for file in sorted(folder.glob("*.openapi"))]
    if not answers or not documents:
        sys.exit(f"{folder} holds no answers: run the tests with FARTHING_TEST_ANSWERS={folder}")
    comparison = Comparison(answers, Document(documents))
    left_out = {row["check"]: row["reason"] for row in read("left_out.json")}
    failed, passed = [f"{what}, seen at {where}" for what, where in sorted(comparison.wrong.items())], 0
    for check, seen in comparison.missing():
        reason = left_out.pop(check, None)
        if seen and reason is not None:
            failed.append(f"{check} was seen: remove it from left_out.json")
        elif not seen and reason is None:
            failed.append(f"{check} was not seen in any test")
        elif seen:
            passed += 1
        else:
            print(f"Left out: {check}: {reason}")
    failed += [f"left_out.json names {check}, which is no check" for check in left_out]
    for row in filter(comparison.is_later, comparison.endpoints):
        print(f"Left out: endpoint {row['endpoint']}: {row['left_out']}")
    print(f"{len(answers)} different answers")
    for line in failed:
        print(f"FAILED {line}")
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
