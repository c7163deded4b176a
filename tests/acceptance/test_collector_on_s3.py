"""The collector on a real S3 server, where a move is a copy and a deletion, and a listing comes
page by page.
"""

from pathlib import Path

from tidegate.checkpoints.gc.classify import Policy
from tidegate.checkpoints.gc.collector import Collector, CollectorSettings
from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.collector import StoreFacts
from tidegate.store.open import open_store
from tidegate.testing.files_contract import STATES, manifest
from tidegate.testing.servers.seaweedfs import SeaweedServer

LATER_MS = 4_000_000_000_000


def rules(after_ms: int) -> CollectorSettings:
    return CollectorSettings(
        policy=Policy(now_ms=LATER_MS + after_ms, grace_ms=0, ttl_ms=0), delay_ms=1, orphans_ms=1
    )


def test_orphans_on_s3_are_collected_taken_back_and_deleted(tmp_path: Path) -> None:
    store = open_store("memory:")
    try:
        with SeaweedServer(tmp_path / "weed") as server:
            files = open_files(f"s3://{server.bucket()}/namespace", server.options)
            storage, collector = CheckpointStorage(files), Collector(files, StoreFacts(store))
            storage.publish(manifest(generation=1), STATES)
            files.write_tree(
                "notes", {f"{number:04d}": b"not ours" for number in range(1_050)}
            )  # more than a page
            assert collector.collect(rules(0)).moved == 1
            assert [*files.walk("5")] == []
            assert collector.quarantines.restore(
                collector.quarantines.find("latest"), LATER_MS
            ) == (1, [])
            assert storage.read("5/1/1").states == STATES
            assert collector.collect(rules(10)).moved == 1
            assert collector.collect(rules(20)).deleted == 1
            assert {path.partition("/")[0] for path, _ in files.walk("")} == {"notes"}
    finally:
        store.close()
