"""The settings in force as rows for people and machines: every key, its value, where it came from;
secrets masked. Caller: `tidegate config show`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.config.engine.options import (
    DYNAMIC_SLOT,
    HTTPS,
    KEYS,
    NAMESPACE,
    STATE_URL,
    Key,
    value_at,
)
from tidegate.config.engine.settings import EngineSources, ValueSource
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.plugin.option import OptionKind
from tidegate.redact import MASK, mask_value

STORAGE = "checkpoint.storage."
WEBHOOK = "event-report-http.url"


@dataclass(frozen=True, slots=True)
class Shown:
    key: str
    value: Any
    source: ValueSource


def in_force(settings: EngineSettings, sources: EngineSources, home: Home) -> list[Shown]:
    """Every key, in the order of the reference page; blocks with free keys by entry, Spark's last."""
    rows = [row for key in KEYS if key.name != HTTPS for row in _rows(key, settings, sources, home)]
    return [
        *rows,
        *(
            Shown(name, mask_value(name, value), sources.of(name))
            for name, value in sorted(settings.spark.items())
        ),
    ]


def _rows(
    key: Key, settings: EngineSettings, sources: EngineSources, home: Home
) -> Iterator[Shown]:
    value = _value(key, settings, home)
    if key.option.kind is OptionKind.MAP:
        for name, inner in sorted(value.items()):
            full = f"{key.name}.{name}"
            yield Shown(
                full,
                MASK if key.option.secret else mask_value(full, inner, free=full.startswith(STORAGE)),
                sources.of(full),
            )
        return
    hidden = key.option.secret and key.name != STATE_URL  # an address is worth seeing
    free = key.name == WEBHOOK  # the path of such an address is a password
    seen = mask_value("", value, free=free) if isinstance(value, str) else value
    yield Shown(key.name, MASK if hidden and value else seen, sources.of(key.name))


def _value(key: Key, settings: EngineSettings, home: Home) -> Any:
    """The setting; where it is empty, what is used instead."""
    if key.name == DYNAMIC_SLOT:
        return settings.worker.slots is None
    value = value_at(settings, key.field)
    if key.name == STATE_URL:
        return value or home.store_url
    return value or str(home.checkpoints) if key.name == NAMESPACE else value
