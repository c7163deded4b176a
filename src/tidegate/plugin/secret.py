"""Secrets in a plan: packed when it is made, unpacked when an operator is built, so that no record
shows them by chance.

Packed is not encrypted: whoever may read the store can undo it, as a driver must. Protect the store
and the home directory. What is masked elsewhere, and how, is decided in tidegate.redact.
"""

from collections.abc import Mapping
from typing import Any

from tidegate.model.plan import Plan
from tidegate.plugin.option import OptionSet, Values
from tidegate.redact import holds_secret, pack, secret_texts, unpack


def packed(values: Mapping[str, Any], options: OptionSet) -> Values:
    """The values with those of secret options packed, and with addresses that hold a password."""
    secret = {option.key for option in options.options if option.secret}
    return {
        key: pack(value) if value and (key in secret or holds_secret(value)) else value
        for key, value in values.items()
    }


def unpacked(values: Mapping[str, Any]) -> Values:
    """The values as their operator reads them."""
    return {key: unpack(value) for key, value in values.items()}


def plan_texts(plan: Plan) -> frozenset[str]:
    """The same for a whole job."""
    blocks = [action.options for pipeline in plan.pipelines for action in pipeline.actions]
    env = {**plan.env.spark, "custom_parameters": plan.env.custom_parameters}
    return frozenset().union(secret_texts(env), *(secret_texts(block) for block in blocks))
