"""Named maps of versioned JSON documents, changed by transactions of conditions and writes.

The protocol of a transaction, which every backend keeps:

1. All checks are evaluated and all writes are made atomically. If a check fails, it is a `Conflict`
   and nothing is written.
2. A transaction that writes gets the next revision of the whole store. An entry's version is the
   revision of its last change, so a version never occurs twice, not even after a delete. Version 0
   means absent.
3. When `transact` returns, the writes survive the death of any process.
4. A transaction carries a token that is written with it. If the answer is lost, the token is looked
   up: it exists (written), or it is voided in the same step (not written, and a late arrival is
   rejected). Only if that fails too is it `OutcomeUnknown`.

Callers: checkpoints, election, coordinator, worker, pipeline, driver. They call `open_store` and
use only the names below.
"""

from tidegate.store.base import (
    Change,
    ChangeKind,
    Changes,
    Check,
    Compacted,
    DamagedEntry,
    Delete,
    Entry,
    Get,
    Listing,
    MapSize,
    OutcomeUnknown,
    Put,
    Query,
    Store,
    undamaged,
)
from tidegate.store.errors import (
    Conflict,
    DocumentDamaged,
    StoreClosed,
    StoreDamaged,
    StoreLost,
    StoreRefused,
    StoreUnavailable,
)
from tidegate.store.open import open_store

__all__ = [
    "Change",
    "ChangeKind",
    "Changes",
    "Check",
    "Compacted",
    "Conflict",
    "DamagedEntry",
    "Delete",
    "DocumentDamaged",
    "Entry",
    "Get",
    "Listing",
    "MapSize",
    "OutcomeUnknown",
    "Put",
    "Query",
    "Store",
    "StoreClosed",
    "StoreDamaged",
    "StoreLost",
    "StoreRefused",
    "StoreUnavailable",
    "open_store",
    "undamaged",
]
