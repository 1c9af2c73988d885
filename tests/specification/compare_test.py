"""Tests of compare.py: each kind of departure from the specification and from the API document is found."""

import unittest

from compare import Comparison, Document

DELETED = {"success": "boolean", "deleted": "boolean", "id": "string"}
ERROR = {"error": {"message": "string", "code": "=customer_not_found", "status": "integer"}}
RESPONSES = {
    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Deleted"}}}},
    "404": {"content": {"application/json": {"schema": {"allOf": [
        {"$ref": "#/components/schemas/Error"},
        {"properties": {"error": {"properties": {"code": {"enum": ["customer_not_found"]}}}}},
    ]}}}},
}
SCHEMA = {
    "type": "object", "required": ["success", "deleted", "id"],
    "properties": {
        "success": {"type": "boolean"}, "deleted": {"type": "boolean"}, "id": {"type": "string"},
        "name": {"type": ["string", "null"]},
    },
}


def compared(*answers):
    document = Document([{
        "paths": {"/customers/{customer_id}": {"delete": {"responses": RESPONSES}}},
        "components": {"schemas": {"Deleted": SCHEMA}},
    }])
    return Comparison(answers, document)


def answer(status=200, code=None, shape=None, method="DELETE", path="/v1/customers/{}"):
    return {"method": method, "path": path, "status": status, "code": code, "shape": shape or dict(DELETED)}


class Compare(unittest.TestCase):
    def wrong(self, **of_answer):
        return list(compared(answer(**of_answer)).wrong)

    def test_an_answer_as_specified_passes(self):
        self.assertEqual(self.wrong(), [])
        self.assertEqual(self.wrong(status=404, code="customer_not_found", shape=ERROR), [])

    def test_a_success_that_departs_is_found(self):
        for change, found in [
            ({"id": "integer"}, "Deleted.id is integer"),
            ({"deleted": "null"}, "Deleted.deleted is null"),
            ({"extra": "string"}, "Deleted.extra is not documented"),
            ({"name": "boolean"}, "Deleted.name is boolean"),
        ]:
            (wrong,) = self.wrong(shape=DELETED | change)
            self.assertIn(found, wrong)
        (wrong,) = self.wrong(shape={"success": "boolean", "deleted": "boolean"})
        self.assertIn("Deleted.id is missing", wrong)
        self.assertEqual(self.wrong(status=201), ["201 is not documented for DELETE /customers/{customer_id}"])

    def test_a_member_that_is_specified_and_not_documented_is_missing_all_the_same(self):
        comparison = compared()
        misfit = comparison.specification.answer_misfit("CancelledSubscription", DELETED)
        self.assertEqual(misfit, "CancelledSubscription.subscription is missing")
        page = {"data": [{"secret_key_id": "key_"}], "has_more": "boolean"}
        misfit = comparison.specification.answer_misfit("Page of SecretKey", page)
        self.assertEqual(misfit, "SecretKey.name is missing")

    def test_an_error_that_departs_is_found(self):
        for status, code in [(404, "nobody_knows"), (409, "customer_not_found"), (404, "plan_not_found")]:
            self.assertTrue(self.wrong(status=status, code=code, shape=ERROR), (status, code))
        hinted = {"error": ERROR["error"] | {"hint": "string"}}
        wrong = self.wrong(status=404, code="customer_not_found", shape=hinted)
        self.assertEqual(wrong, ["Error.error.hint is not specified"])
        unnamed = {"error": {"code": "=customer_not_found", "status": "integer"}}
        self.assertTrue(self.wrong(status=404, code="customer_not_found", shape=unnamed))
        self.assertTrue(self.wrong(status=400, code="route_not_found", shape=ERROR, path="/v1/nothing"))

    def test_what_no_test_saw_is_missing(self):
        seen = dict(compared(answer(), answer(404, "customer_not_found", ERROR)).missing())
        for check in [
            "code 404 customer_not_found", "endpoint DELETE /customers/{customer_id} 200",
            "endpoint DELETE /customers/{customer_id} customer_not_found",
            "operation DELETE /customers/{customer_id} 200", "specified Deleted.id", "documented Deleted.id",
            "documented Deleted.name null or absent",
        ]:
            self.assertIs(seen[check], True, check)
        for check in ["code 404 plan_not_found", "documented Deleted.name", "endpoint GET /usage 200"]:
            self.assertIs(seen[check], False, check)


if __name__ == "__main__":
    unittest.main()
