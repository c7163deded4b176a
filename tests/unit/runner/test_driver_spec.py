"""DriverSpec: built from settings, and sent as a line through a pipe."""

import os
import threading
from pathlib import Path

from tidegate.home import Home
from tidegate.model.engine import CheckpointSettings, EngineSettings
from tidegate.runner.driver_spec import driver_spec, encode, receive, send

HOME = Home(Path("/somewhere"))


def test_the_engine_settings_are_in_the_spec() -> None:
    checkpoint = CheckpointSettings(
        interval_ms=700,
        timeout_ms=800,
        retained_max=9,
        pause_ms_min=5,
        storage_root="/shared/checkpoints",
    )
    settings = EngineSettings(
        store_url="postgresql://db/x",
        write_behind_ms=20,
        compaction_threshold=77,
        checkpoint=checkpoint,
        spark={"spark.master": "spark://m:1"},
    )
    order = driver_spec(settings, HOME, job_id=7, generation=3, worker="w", detached=True)
    assert (order.home, order.job_id, order.generation, order.worker, order.detached) == (
        "/somewhere",
        7,
        3,
        "w",
        True,
    )
    assert (
        order.store_url,
        order.checkpoints_root,
        order.compaction_threshold,
        order.write_behind_ms,
    ) == ("postgresql://db/x", "/shared/checkpoints", 77, 20)
    assert (
        order.interval_ms,
        order.timeout_ms,
        order.retained_max,
        order.pause_ms_min,
        order.spark,
    ) == (700, 800, 9, 5, {"spark.master": "spark://m:1"})


def test_storage_keys_are_in_the_spec_but_not_in_its_repr() -> None:
    checkpoint = CheckpointSettings(
        storage_root="s3://b/x", storage_options={"fs.s3a.secret.key": "hunter2"}
    )
    order = driver_spec(EngineSettings(checkpoint=checkpoint), HOME, job_id=7, generation=3)
    assert (order.checkpoints_root, order.storage_options) == (
        "s3://b/x",
        {"fs.s3a.secret.key": "hunter2"},
    )
    assert "hunter2" not in repr(order)


def test_by_default_everything_is_in_the_home() -> None:
    order = driver_spec(EngineSettings(), HOME, job_id=7, generation=3)
    assert (order.store_url, order.checkpoints_root) == (HOME.store_url, str(HOME.checkpoints))
    assert (order.interval_ms, order.detached) == (10_000, False)


def test_receive_reads_one_spec_and_leaves_the_rest() -> None:
    order = driver_spec(
        EngineSettings(spark={"spark.x": "y\nz" * 50_000}), HOME, job_id=7, generation=3
    )
    read_end, write_end = os.pipe()
    thread = threading.Thread(
        target=send, args=(order, write_end)
    )  # more than a pipe holds: someone has to read
    thread.start()
    assert receive(read_end) == order
    thread.join()
    os.write(write_end, b"rest")
    assert os.read(read_end, 10) == b"rest"
    os.close(read_end)
    os.close(write_end)


def test_an_incomplete_spec_is_none() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, encode(driver_spec(EngineSettings(), HOME, job_id=7, generation=3))[:-1])
    os.close(write_end)
    assert receive(read_end) is None
    os.close(read_end)


def test_a_dead_reader_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    send(driver_spec(EngineSettings(), HOME, job_id=7, generation=3), write_end)
    os.close(write_end)
