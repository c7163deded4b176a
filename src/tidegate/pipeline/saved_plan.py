"""The plan of a job as a savepoint stores it: what a restore compares, without secrets. Pure.

Called by savepoints.
"""

import hashlib
import json
from typing import Any

from tidegate.model.document import to_document
from tidegate.model.errors import UserError
from tidegate.model.plan import Action, Plan
from tidegate.plugin import registry
from tidegate.redact import MASK, mask_value


def operators_digest(plan: Plan) -> str:
    """Hash the operators and their connections.

    Two jobs with the same digest can use each other's state.
    """
    operators = [
        [p.id, a.operator, a.kind.value, a.plugin, list(a.inputs)]
        for p in plan.pipelines
        for a in p.actions
    ]
    return hashlib.sha256(json.dumps(operators).encode()).hexdigest()


def plan_document(plan: Plan) -> dict[str, Any]:
    """The operators of a plan with their options, without secrets."""
    return {
        "job_name": plan.job_name,
        "mode": plan.env.mode.value,
        "pipelines": [
            {"id": p.id, "actions": [_action(action) for action in p.actions]}
            for p in plan.pipelines
        ],
    }


def _action(action: Action) -> dict[str, Any]:
    secrets = _secrets(action)
    options = {
        key: MASK if key in secrets and value else mask_value(key, value)
        for key, value in to_document(action.options).items()
    }
    return {**to_document(action), "options": options}


def _secrets(action: Action) -> frozenset[str]:
    try:
        connector = registry.find(action.kind, action.plugin)
    except UserError:  # the options of a connector that is not installed here are unknown
        return frozenset()
    return frozenset(
        name
        for option in connector.options.options
        if option.secret
        for name in (option.key, *option.fallbacks)
    )
