"""Scratch directories are removed when their owner is dead, and not before."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tidegate.home import Home
from tidegate.model.document import to_document
from tidegate.model.records import ProcessRef
from tidegate.runner import scratch
from tidegate.runner.process import process_ref
from tidegate.runner.scratch import OWNER, Sweeper


def owned(place: Path, owner: ProcessRef) -> Path:
    place.mkdir(parents=True)
    (place / OWNER).write_text(json.dumps(to_document(owner)))
    return place


def dead() -> ProcessRef:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    ref = process_ref(process.pid)
    process.wait()
    return ref


def test_only_directories_of_dead_drivers_of_this_host_are_removed(tmp_path: Path) -> None:
    home, me, gone = Home(tmp_path), process_ref(os.getpid()), dead()
    home.create()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as living:
        alive = owned(home.work(7, 2), process_ref(living.pid))
        elsewhere = owned(home.work(8, 1), replace(gone, host="elsewhere"))
        rebooted = owned(home.work(9, 1), replace(process_ref(living.pid), boot="an earlier one"))
        left = owned(home.work(7, 1), gone)
        warm = owned(home.warm_work(gone.pid, gone.started), gone)
        Sweeper(home, me.host, lambda: 0.0).sweep()
        living.communicate(b"\n")
    assert (alive.exists(), elsewhere.exists()) == (True, True)
    assert (rebooted.exists(), left.exists(), warm.exists()) == (False, False, False)
    assert {p.name for p in home.work_root.iterdir()} == {"7", "8"}


def test_a_directory_without_owner_is_removed_by_the_second_sweep(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    nameless = home.work(7, 1)
    nameless.mkdir(parents=True)
    sweeper = Sweeper(home, process_ref(os.getpid()).host, lambda: 0.0)
    sweeper.sweep()
    assert nameless.exists()
    sweeper.sweep()
    assert not nameless.exists()


def test_a_created_directory_names_its_owner(tmp_path: Path) -> None:
    home = Home(tmp_path)
    scratch.create(home.work(7, 1))
    assert json.loads((home.work(7, 1) / OWNER).read_text()) == to_document(
        process_ref(os.getpid())
    )
    scratch.remove(home.work(7, 1))
    assert not home.job_work(7).exists()
