"""The settings in effect as rows: every key, its value, its source; secrets masked.

Caller: `tidegate config show`.
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
class ShownSetting:
    key: str
    value: Any
    source: ValueSource


def effective_settings(
    settings: EngineSettings, sources: EngineSources, home: Home
) -> list[ShownSetting]:
    """List every key, in the order of docs/reference/engine.md.

    Blocks with free keys are listed by entry, Spark's last.
    """
    rows = [row for key in KEYS if key.name != HTTPS for row in _rows(key, settings, sources, home)]
    return [
        *rows,
        *(
            ShownSetting(name, mask_value(name, value), sources.of(name))
            for name, value in sorted(settings.spark.items())
        ),
    ]


def _rows(
    key: Key, settings: EngineSettings, sources: EngineSources, home: Home
) -> Iterator[ShownSetting]:
    value = _value(key, settings, home)
    if key.option.kind is OptionKind.MAP:
        for name, inner in sorted(value.items()):
            full = f"{key.name}.{name}"
            yield ShownSetting(
                full,
                MASK
                if key.option.secret
                else mask_value(full, inner, free=full.startswith(STORAGE)),
                sources.of(full),
            )
        return
    hidden = key.option.secret and key.name != STATE_URL  # the address is useful to see
    free = key.name == WEBHOOK  # the path of such an address can be a secret
    seen = mask_value("", value, free=free) if isinstance(value, str) else value
    yield ShownSetting(key.name, MASK if hidden and value else seen, sources.of(key.name))


def _value(key: Key, settings: EngineSettings, home: Home) -> Any:
    """Return the setting, or what is used instead if it is empty."""
    if key.name == DYNAMIC_SLOT:
        return settings.worker.slots is None
    value = value_at(settings, key.field)
    if key.name == STATE_URL:
        return value or home.store_url
    return value or str(home.checkpoints) if key.name == NAMESPACE else value
