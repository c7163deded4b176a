"""Durable maps: named maps of versioned JSON documents, with one primitive, a transaction of
conditions and writes.

The protocol of a transaction, which every backend keeps:

1. All checks are judged and all writes are made at one moment; a check that fails is a `Conflict` and nothing is written.
2. A transaction that writes takes the next revision of the whole store. An entry's version is the revision of its last change, so a version
   never comes twice, not even after a delete. Version 0 means absent.
3. When `transact` returns, the writes outlive the death of any process.
4. A transaction carries a token that is written with it. When the answer is lost, the token is looked up: it is there (written), or it is made
   void in the same step (not written, and a late arrival is turned away). Only when even that cannot be done is it `OutcomeUnknown`.

Callers: checkpoints, election, coordinator, worker, pipeline, driver. They come in through
`open_store` and see only the names below.
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
