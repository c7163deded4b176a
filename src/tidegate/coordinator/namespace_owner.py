"""Which store a namespace belongs to. Checked by the collector before it moves anything.

To a store that knows none of its jobs, all of them look like orphans. The first collector that acts
in a namespace records the id of its store there. A new store (the old one was lost, or two
installations share a namespace by mistake) has another id, and collects nothing until a user
confirms that the namespace is its own now.
"""

import json
import uuid

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.gc.classify import OWNER
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.maintenance import INSTALLATION, INSTALLATION_KEY, InstallationRecord
from tidegate.store.base import Check, Put, Store
from tidegate.store.errors import Conflict


class OtherNamespace(UserError):
    """The namespace belongs to another store."""

    condition = "namespace-of-another-store"

    def __init__(self, place: str, owner: str, mine: str) -> None:
        super().__init__(
            f"{place} belongs to the store {owner}, and this is the store {mine}: its jobs would be"
            " taken for orphans, so nothing is collected. If that store is gone for good, restore"
            " the jobs that you want first, then say: tidegate state gc --collect --take-namespace"
        )
        self.location = place
        self.owner = owner
        self.mine = mine


def installation_id(store: Store) -> str:
    """Return the id of this store, which is created once."""
    while True:
        entry = store.get(INSTALLATION, INSTALLATION_KEY)
        if entry is not None:
            return from_document(InstallationRecord, entry.value, "the installation").id
        try:
            store.transact(
                [Check(INSTALLATION, INSTALLATION_KEY, 0)],
                [
                    Put(
                        INSTALLATION,
                        INSTALLATION_KEY,
                        to_document(InstallationRecord(id=uuid.uuid4().hex[:12])),
                    )
                ],
            )
        except Conflict:
            continue


def owner_of(files: Files) -> str:
    """Return the id of the store that a namespace belongs to; empty if none is recorded."""
    try:
        document = json.loads(files.read(OWNER))
        return str(document["store"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        return "(unreadable)"


def claim_namespace(files: Files, store: Store, *, take: bool = False) -> None:
    """Ensure that the namespace is this store's, or `take` it; OtherNamespace if it is not."""
    mine = installation_id(store)
    data = (json.dumps({"version": 1, "store": mine}) + "\n").encode()
    failpoint("collector.own.before")
    if take:
        files.write(OWNER, data)
    elif not owner_of(files):
        files.create(OWNER, data)
    failpoint("collector.own.after")
    owner = owner_of(files)
    if owner != mine:
        raise OtherNamespace(files.describe(), owner, mine)
