"""Who may use a route, as a dependency of it: it shows in the description too."""

from collections.abc import Callable

from fastapi import Depends, Request

from tidegate.api.access import who_of
from tidegate.model.errors import UserError
from tidegate.model.records import Role


class NotEnough(UserError):
    """The caller's role does not allow this."""

    condition = "not-allowed"


def _needs(role: Role) -> Callable[[Request], None]:
    def check(request: Request) -> None:
        who = who_of(request)
        if not who.role.may(role):
            raise NotEnough(f"{who.name} is {who.role.value} here, and this needs the role {role.value}")

    return check


VIEWER, OPERATOR, ADMIN = (Depends(_needs(role)) for role in Role)
