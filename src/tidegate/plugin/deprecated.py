"""Old names of the connector interface, accepted until 0.3.0 with a DeprecationWarning.

Called by the modules that connector authors import. Nothing in Tidegate uses an old name.
"""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")

OLD_NAMES = {
    "tidegate.plugin.contract": {
        "Book": "ResourceRegistry",
        "Committed": "BatchCommitted",
        "JOINT_TABLE": "MULTIPLE_TABLES",
        "Resume": "SinkRestore",
        "Runway": "LogRetention",
        "SinkMemory": "TargetRecord",
        "SinkRange": "CommitRange",
    },
    "tidegate.plugin.option": {"Kind": "OptionKind"},
}
OLD_METHODS = {
    "Source": {
        "at_end": "is_exhausted",
        "behind": "has_backlog",
        "equip": "attach_resources",
        "give_up": "abandon_batch",
        "joint_splits": "shared_splits",
        "newest": "latest_position",
        "runway": "log_retention",
    },
    "Sink": {"equip": "attach_resources", "reach": "check_connection"},
    "Committer": {"ahead": "uncheckpointed_commits", "memory": "target_record"},
}


def _warn(old: str, new: str, *, stacklevel: int = 3) -> None:
    message = f"{old} is deprecated and will be removed in 0.3.0: use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def old_name(module: str, name: str) -> Any:
    """Return what a module calls by a new name now; for a module-level `__getattr__`."""
    new = OLD_NAMES[module].get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(f"{module}.{name}", new, stacklevel=4)
    return getattr(sys.modules[module], new)


def accept_old_methods(cls: type, base: str) -> None:
    """Let a subclass that defines old method names, itself or in a mixin, override the new ones."""
    for old, new in OLD_METHODS[base].items():
        owner = next(c for c in cls.__mro__ if old in vars(c) or new in vars(c))
        if new not in vars(owner):
            _warn(f"{cls.__name__}.{old}", new, stacklevel=5)  # ABCMeta is between
            setattr(cls, new, vars(owner)[old])


def old_fields(**names: str) -> Callable[[type[T]], type[T]]:
    """Accept old field names (old="new") of a dataclass, as keywords and as attributes."""

    def decorate(cls: type[T]) -> type[T]:
        construct = cls.__init__

        @wraps(construct)
        def accept(self: T, *args: Any, **fields: Any) -> None:
            for old in names.keys() & fields.keys():
                _warn(f"{cls.__name__}({old}=...)", names[old])
                fields[names[old]] = fields.pop(old)
            construct(self, *args, **fields)

        type.__setattr__(cls, "__init__", accept)
        for old, new in names.items():
            setattr(cls, old, _old_attribute(cls.__name__, old, new))
        return cls

    return decorate


def _old_attribute(owner: str, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        _warn(f"{owner}.{old}", new)
        return getattr(self, new)

    return property(read)
