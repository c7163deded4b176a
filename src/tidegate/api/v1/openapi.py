"""Post-process the OpenAPI document that FastAPI generates. Pure.

Class names must be unique in the code, so some models carry the suffix `Model`. That is an internal
matter: the document names their schemas without it.
"""

from typing import Any

SUFFIX = "Model"
PREFIX = "#/components/schemas/"


def without_model_suffix(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with `CheckpointModel` renamed to `Checkpoint`, and so on."""
    schemas = document.get("components", {}).get("schemas", {})
    renamed = {
        name: name.removesuffix(SUFFIX)
        for name in schemas
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) not in ("", *schemas)
    }
    result: dict[str, Any] = _renamed_references(document, renamed)
    if schemas:
        result["components"]["schemas"] = {
            renamed.get(name, name): _renamed_title(schema, name, renamed)
            for name, schema in result["components"]["schemas"].items()
        }
    return result


def _renamed_references(value: Any, renamed: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed_references(each, renamed) for each in value]
    if not isinstance(value, dict):
        return value
    result = {key: _renamed_references(each, renamed) for key, each in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(PREFIX)
        result["$ref"] = PREFIX + renamed.get(name, name)
    return result


def _renamed_title(schema: Any, name: str, renamed: dict[str, str]) -> Any:
    if name in renamed and isinstance(schema, dict) and schema.get("title") == name:
        return schema | {"title": renamed[name]}
    return schema
