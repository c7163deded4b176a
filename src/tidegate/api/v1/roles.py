"""Who may use a route, as a dependency of it: it shows in the description too."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from tidegate.api.auth import principal_of
from tidegate.model.errors import UserError
from tidegate.model.records import Role


class RoleMissing(UserError):
    """The caller's role does not allow this."""

    condition = "not-allowed"


def _needs(role: Role) -> Callable[[Request], Awaitable[None]]:
    async def check(
        request: Request,
    ) -> None:  # as a plain function it would cost every request a thread
        who = principal_of(request)
        if not who.role.may(role):
            raise RoleMissing(
                f"{who.name} is {who.role.value} here, and this needs the role {role.value}"
            )

    return check


VIEWER, OPERATOR, ADMIN = (Depends(_needs(role)) for role in Role)


def describe_roles(router: APIRouter) -> None:
    """Write the role that each route needs into its description.

    A route without one is a mistake.
    """
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
