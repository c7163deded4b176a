"""The role that a route needs, as a dependency of the route. It is in the OpenAPI document too."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from tidegate.api.auth import permission_denied, principal_of
from tidegate.model.errors import UserError
from tidegate.model.records import Role


class RoleMissing(UserError):
    """The caller's role does not allow this."""

    condition = "not-allowed"


def _needs(role: Role) -> Callable[[Request], Awaitable[None]]:
    # A plain function would take a thread for every request.
    async def check(request: Request) -> None:
        principal = principal_of(request)
        if not principal.role.may(role):
            raise RoleMissing(permission_denied(principal, role))

    return check


VIEWER, OPERATOR, ADMIN = (Depends(_needs(role)) for role in Role)


def describe_roles(router: APIRouter) -> None:
    """Add the role that each route needs to its description. A route without one is a bug."""
    roles = {
        depends.dependency: role
        for depends, role in zip((VIEWER, OPERATOR, ADMIN), Role, strict=True)
    }
    for route in router.routes:
        if isinstance(route, APIRoute):
            (needed,) = (
                roles[each.dependency] for each in route.dependencies if each.dependency in roles
            )
            route.openapi_extra = {**(route.openapi_extra or {}), "x-role": needed.value}
