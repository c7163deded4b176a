"""Field and schema names of the typed API: new names, and the deprecated ones beside them."""

from typing import Any

import pytest

from tidegate.api.v1.models import Model, StopRequest
from tidegate.api.v1.openapi import without_model_suffix

RENAMED = {
    ("Job", "wish"): "desired",
    ("Job", "figures"): "metrics",
    ("JobDetails", "wish"): "desired",
    ("JobDetails", "figures"): "metrics",
    ("StopRequest", "how"): "mode",
    ("ValidationResult", "good"): "valid",
    ("SavepointProgress", "asked"): "requested",
    ("Savepoint", "made"): "created",
    ("Quarantine", "begun"): "created",
    ("Storage", "place"): "location",
    ("CollectorFinding", "why"): "reason",
    ("Token", "made"): "created",
    ("NewToken", "made"): "created",
    ("TokenRequest", "lives_s"): "lifetime_s",
}


@pytest.fixture
def document(site: Any) -> Any:
    return site.get("/api/v1/openapi.json").json()


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(references, value.values()))


def test_schemas_have_no_model_suffix(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if name.endswith("Model")] == []
    assert [name for name, schema in schemas.items() if schema.get("title") != name] == []
    assert references(document) <= {f"#/components/schemas/{name}" for name in schemas}
    assert {"Checkpoint", "Problem", "SavepointRequest", "TokenRequest"} <= set(schemas)


def test_a_schema_keeps_its_suffix_if_the_bare_name_is_taken() -> None:
    described = {"components": {"schemas": {"JobModel": {"title": "JobModel"}, "Job": {}}}}
    assert without_model_suffix(described) == described


def test_deprecated_fields_are_marked_and_name_their_replacement(document: Any) -> None:
    found = {
        (name, field): schema["description"]
        for name, described in document["components"]["schemas"].items()
        for field, schema in described.get("properties", {}).items()
        if schema.get("deprecated")
    }
    assert found == {key: f"deprecated, use `{new}`" for key, new in RENAMED.items()}


def test_jobs_have_the_deprecated_fields_with_the_same_values(site: Any) -> None:
    site.running(7)
    site.ended(8)
    jobs = site.get("/api/v1/jobs").json()["jobs"]
    for job in (*jobs, site.get("/api/v1/jobs/7").json(), site.get("/api/v1/jobs/8").json()):
        assert job["wish"] == job["desired"]
        assert job["figures"] == job["metrics"]
        assert job["metrics"] is not None


def test_requests_may_use_the_deprecated_names(site: Any) -> None:
    site.running(5)
    site.get("/overview")
    answer = site.http.post("/api/v1/jobs/5/stop", json={"how": "force-stop"})
    assert (answer.status_code, answer.json()["desired"]) == (202, "force-stop")
    created = site.http.post("/api/v1/tokens", json={"name": "ci", "lives_s": 60}).json()
    assert created["expires"] is not None
    assert created["made"] == created["created"]


def test_both_names_with_different_values_are_rejected(site: Any) -> None:
    site.running(5)
    answer = site.http.post("/api/v1/jobs/5/stop", json={"how": "cancel", "mode": "force-stop"})
    assert answer.status_code == 422
    assert "how is the deprecated name of mode: send only mode" in answer.json()["detail"]
    assert StopRequest.model_validate({"how": "cancel", "mode": "cancel"}).mode == "cancel"


def test_every_old_name_is_a_declared_field() -> None:
    def all_models(model: type[Model]) -> set[type[Model]]:
        return {model}.union(*map(all_models, model.__subclasses__()))

    for model in all_models(Model):
        assert {*model.old_names, *model.old_names.values()} <= set(model.model_fields)
