"""Connectors with their options, and validation of job files. Starts nothing."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from tidegate.api.seatunnel.job_source import NAME, decode_body, format_of, plan_with_problems
from tidegate.api.v1 import models, serializers
from tidegate.api.v1.roles import OPERATOR, VIEWER
from tidegate.model.job import BlockKind
from tidegate.model.problem import Problem
from tidegate.plugin import connector as plugins
from tidegate.plugin.option import Option
from tidegate.plugin.registry import connectors, find
from tidegate.plugin.rules import rules


def routes() -> APIRouter:
    """Create the routes; none of them needs the store."""
    router = APIRouter(tags=["catalog"])

    @router.get("/connectors", dependencies=[VIEWER])
    def list_connectors(
        kind: Annotated[BlockKind | None, Query(description="only this kind")] = None,
    ) -> list[models.ConnectorSummary]:
        """List all sources, transforms and sinks."""
        return [
            models.ConnectorSummary(**_head(each))
            for each in connectors()
            if kind in (None, each.kind)
        ]

    @router.get("/connectors/{kind}/{name}", dependencies=[VIEWER])
    def get_connector(kind: BlockKind, name: str) -> models.ConnectorModel:
        """Get a connector with its options and the rules between them."""
        found = find(kind, name)
        return models.ConnectorModel(
            **_head(found),
            options=[_option(option) for option in found.options.options],
            rules=rules(found.options),
        )

    @router.post("/validate", dependencies=[OPERATOR])
    def validate_job(body: models.SubmissionModel) -> models.ValidationResult:
        """Validate a job file: all problems with their lines, and the graph. Starts nothing."""
        plan, problems = plan_with_problems(
            decode_body(body.text.encode()), format_of(body.format), body.strictness
        )
        return models.ValidationResult(
            valid=plan is not None,
            problems=[_problem(problem) for problem in problems],
            graph=serializers.graph(plan) if plan else [],
        )

    return router


def _head(connector: plugins.Connector) -> dict[str, Any]:
    able = connector.capabilities
    return {
        "name": connector.name,
        "kind": connector.kind.value,
        "aliases": list(connector.aliases),
        "summary": connector.summary,
        "batch": able.batch,
        "streaming": able.streaming,
        "delivery": able.delivery.value if able.delivery else None,
        "go_back": able.go_back.value if able.go_back else None,
        "row_kinds": able.row_kinds,
        "multi_table": able.multi_table,
    }


def _option(option: Option) -> models.OptionModel:
    return models.OptionModel(
        key=option.key,
        type=option.kind.value,
        default=option.default,
        required=option.required,
        fallbacks=list(option.fallbacks),
        choices=list(option.choices),
        minimum=option.minimum,
        maximum=option.maximum,
        secret=option.secret,
        description=option.description,
    )


def _problem(problem: Problem) -> models.JobFileProblem:
    return models.JobFileProblem(
        severity=problem.severity.value,
        message=problem.message,
        line=problem.at.line or None if problem.at.file == NAME else None,
        path=problem.path,
        expected=problem.expected,
        suggestion=problem.suggestion,
    )
