"""Publish the staged files of a batch exactly once, on disks that have no transactions.

Called by the driver's batch loop, through the contract. Must not touch anything of another job,
pipeline or sink. Paths are those of sink_layout. The protocol:

- target_record: the newest checkpoint that the target proves, by its records and its fence. If
  both were removed by `close` after `finish`, by the names of the files.
- uncheckpointed_commits: the first half of `open`, up to the rename of the staging directories;
  then the records after the restore point. No record can be added to them later.
- open: create fence-g exclusively, with the driver's token. A higher fence means Fenced, one with
  another token OtherCopy. Rename staging/g' to dead/g' for every lower g'. That rename is the
  fence: a record gets its name by a hard link from a file in staging/g', so after the rename no
  lower generation can add a record. Then roll back (rewind) the records that are newer than the
  restore point and will not be repeated, publish those that were left half-done, and remove all
  other staged files. If an older restore point was chosen on purpose, files whose records were
  pruned are rolled back by their names. Create staging/g, then check for a higher fence again: a
  concurrent successor either saw that directory and retired it, or is detected here. A fresh
  lineage removes what older lineages of the same job left (lineage_cleanup).
- commit: check that the directory is the one that was opened and still belongs to this driver;
  then stage, record, publish, mark as done. The record is written completely in staging/g and
  linked to commits/<n>.json: the first one wins. Every driver that finds a record, for a repeated
  batch or as a zombie, does only what it says: rename each staged file to its final name. A file
  that is not staged any more was published. A record with other offsets is an error. Staged files
  of losing attempts are removed. A batch without a record, before one that has a record, is
  complete: its record was pruned.
- rewind: newest record first: staged files, final files, record, mark. Every step is repeatable.
- retain: prune records before the oldest restore point, a bounded number in each call, but never
  an unpublished one.
- close after finish: remove all bookkeeping of this sink. If the sink is opened again, at an older
  point or to repeat a batch, the names of the files are its only memory.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tidegate.connectors.localfile.commit_record import (
    CommitOffsetsDiffer,
    CommitRecord,
    NoRecord,
    StagedFile,
    numbered_names,
    read_record,
    recorded_checkpoints,
    staged_files,
)
from tidegate.connectors.localfile.durable_io import (
    Created,
    DiskTrouble,
    create_file,
    discard,
    disk_errors,
    link,
    list_names,
    make_directory,
    remove_empty,
    remove_tree,
    sync,
    sync_all,
)
from tidegate.connectors.localfile.fence import (
    DRAFT,
    Fence,
    check_generation,
    create_fence,
    directory_identity,
    dropped_by,
    highest_fence,
    new_fence,
    refuse_links,
    verify_ownership,
)
from tidegate.connectors.localfile.lineage_cleanup import (
    describe_foreign_files,
    mark_owner,
    remove_older_lineages,
    retire_staging,
)
from tidegate.connectors.localfile.publishing import is_done, publish, staged_paths
from tidegate.connectors.localfile.rollback import (
    checkpoint_by_names,
    refuse_newer_by_name,
    roll_back_by_name,
)
from tidegate.connectors.localfile.save_mode import SaveMode
from tidegate.connectors.localfile.sink_layout import SinkDirectory
from tidegate.failpoint import failpoint
from tidegate.model.errors import Fenced
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    CommitRange,
    Committer,
    SinkRestore,
    TargetRecord,
)

_PRUNED_MAX = 200
"""Records that one call of retain removes at most."""
_log = logging.getLogger(__name__)


class FileCommitter(Committer):
    """Committer of one file sink.

    `directory` holds all its files; None if the directory depends on the table.
    """

    def __init__(
        self,
        sink: SinkDirectory,
        *,
        job_id: int,
        transactional: bool,
        save_mode: SaveMode,
        directory: str | None,
    ) -> None:
        self._sink = sink
        self._job_id = job_id
        self._transactional = transactional
        self._save_mode = save_mode
        self._directory = directory
        self._layout = sink.layout("")
        self._generation = 0
        self._fence_mark = Fence(generation=0)
        self._identity = (0, 0)
        self._committed = 0
        self._newest_with_files: int | None = (
            None  # the newest checkpoint that has files; None if unknown
        )
        self._finished = False

    # -- open

    @property
    def _description(self) -> str:
        return f"the file sink {self._sink.operator}"

    def target_record(self, resume: SinkRestore) -> TargetRecord:
        layout, root = self._sink.layout(resume.lineage), self._sink.root
        with disk_errors(f"asking {self._description} what it holds"):
            refuse_links(layout)
            if resume.checkpoint == 0:
                others = (
                    describe_foreign_files(self._sink, resume.lineage)
                    if resume.fresh and self._save_mode.data == "APPEND_DATA"
                    else ""
                )
                return TargetRecord(target=root, checkpoint=0, others=others)
            if (by := dropped_by(layout)) is not None:
                return TargetRecord(
                    target=f"{root} (whose files were removed by the save mode of {by})",
                    checkpoint=0,
                )
            if not os.path.isdir(layout.base):
                return TargetRecord(
                    target=root,
                    checkpoint=checkpoint_by_names(
                        self._sink, resume, transactional=self._transactional
                    ),
                )
            fence = highest_fence(layout)
            newest = max([*recorded_checkpoints(layout), fence.checkpoint if fence else 0])
            return TargetRecord(
                target=root,
                checkpoint=(
                    newest
                    if self._transactional or fence is None
                    else max(newest, resume.checkpoint)
                ),
            )

    def _begin(self, resume: SinkRestore) -> None:
        self._layout, self._generation = self._sink.layout(resume.lineage), resume.generation
        self._fence_mark = new_fence(
            resume.generation, resume.token, resume.installation, resume.checkpoint
        )

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:
        self._begin(resume)
        if not os.path.isdir(self._layout.base):
            return ()  # unchanged on purpose: `open` detects that the records are gone
        with disk_errors(f"asking {self._description} what it holds"):
            create_fence(self._layout, self._fence_mark, self._description)
            self._retire_lower_generations()
            records = [
                read_record(self._layout, checkpoint)
                for checkpoint in recorded_checkpoints(self._layout)
                if checkpoint > resume.checkpoint
            ]
        return [
            CommitRange(checkpoint=r.checkpoint, offsets=r.offsets)
            for r in records
            if isinstance(r, CommitRecord)
        ]

    def open(self, resume: SinkRestore) -> None:
        self._begin(resume)
        self._committed = resume.checkpoint
        self._newest_with_files = 0 if resume.fresh else (resume.state or {}).get("filled")
        fresh = resume.fresh
        with disk_errors(f"opening {self._description}"):
            if fresh and self._directory is not None and not os.path.exists(self._layout.started):
                self._save_mode.check_exists(self._directory)
            if self._transactional and not fresh and not os.path.isdir(self._layout.base):
                refuse_newer_by_name(self._sink, resume, self._description)
                roll_back_by_name(self._sink, resume)
            create_fence(self._layout, self._fence_mark, self._description)
            mark_owner(self._layout, resume.lineage, self._job_id)
            self._retire_lower_generations()
            self._apply_records(resume)
            self._remove_obsolete()
            self._create_staging()
            self._roll_back_lost(resume)
            self._discard_stray_marks()
            self._identity = directory_identity(self._layout)
            discard(self._layout.dropped)  # the user has accepted the loss by restoring anyway
            if fresh:
                remove_older_lineages(self._sink, resume.lineage, self._fence_mark)
                self._save_mode.start(self._layout)
            if self._directory is not None:
                self._save_mode.prepare(self._layout, self._directory)

    def _check_fence(self) -> None:
        check_generation(self._layout, self._generation, self._description)

    def _verify(self) -> None:
        verify_ownership(self._layout, self._fence_mark, self._identity, self._description)

    def _superseded(self) -> Fenced:
        """Build the Fenced error for files that disappeared under this driver.

        Raises instead if the directory itself was removed or replaced.
        """
        self._verify()
        current = max(self._layout.fences(), default=0)
        return Fenced(self._description, self._generation, max(current, self._generation + 1))

    def _retire_lower_generations(self) -> None:
        for generation in _generations(self._layout.staging_root):
            if generation < self._generation:
                retire_staging(self._layout.staging(generation), self._layout.retired(generation))
        failpoint("filesink.fence.after")

    def _apply_records(self, resume: SinkRestore) -> None:
        """Roll back records newer than the restore point and publish the rest, newest first."""
        for checkpoint in reversed(recorded_checkpoints(self._layout)):
            record = read_record(self._layout, checkpoint)
            if isinstance(record, NoRecord):
                continue
            if not resume.keeps(checkpoint):
                self._check_fence()
                self._rewind(record)
            elif not is_done(self._layout, record):
                publish(self._layout, record)

    def _rewind(self, record: CommitRecord) -> None:
        layout = self._layout
        failpoint("filesink.rewind.before")
        # Staged files first: then nobody, not even a zombie, can publish them concurrently.
        for file in record.files:
            for path in staged_paths(layout, record, file):
                discard(path)
        directories = set()
        for index, file in enumerate(record.files):
            final = layout.final(file.final)
            discard(final)
            directories.add(os.path.dirname(final))
            if index == 0:
                failpoint("filesink.rewind.middle")
        sync_all(directories)
        self._check_fence()
        # Otherwise a successor has already rolled it back and written this batch again.
        if read_record(layout, record.checkpoint) == record:
            discard(layout.record(record.checkpoint))
        discard(layout.done(record.checkpoint, record.identity))
        sync(layout.commits)
        failpoint("filesink.rewind.after")
        _log.info(
            "checkpoint_rolled_back",
            extra={
                "checkpoint": record.checkpoint,
                "lineage": record.lineage,
                "sink": record.sink,
                "files": len(record.files),
            },
        )

    def _roll_back_lost(self, resume: SinkRestore) -> None:
        """Roll back batches whose commit record was lost.

        Evidence is a mark after the restore point and after all records. Runs only after this
        generation's staging directory exists: until then a successor may have completed that very
        batch and pruned its record. When rewinding to a point before the oldest record, the names
        of the files are the only evidence.
        """
        recorded = set(recorded_checkpoints(self._layout))
        if resume.rewind:
            roll_back_by_name(self._sink, resume, keep=recorded)
            return
        marked = {
            int(stem)
            for name in list_names(self._layout.commits)
            if name.endswith(".done") and (stem := name.partition("-")[0]).isdigit()
        }
        newest = max(resume.checkpoint, *recorded, 0)
        lost = {number for number in marked - recorded if number > newest}
        if lost:
            roll_back_by_name(self._sink, resume, only=lost)

    def _remove_obsolete(self) -> None:
        """Remove staged files, retired directories, lower fences and drafts.

        Every remaining record is published at this point, so no staged file is needed any more.
        """
        layout = self._layout
        for generation in _generations(layout.retired_root):
            if generation < self._generation:
                remove_tree(layout.retired(generation))
        for name in list_names(layout.staging(self._generation)):
            discard(os.path.join(layout.staging(self._generation), name))
        for generation in layout.fences():
            if generation < self._generation:
                discard(layout.fence(generation))
        for name in list_names(layout.base):
            if name.startswith(DRAFT):
                discard(os.path.join(layout.base, name))

    def _discard_stray_marks(self) -> None:
        """Remove marks whose record is gone, after _roll_back_lost has evaluated them."""
        recorded = {str(c) for c in recorded_checkpoints(self._layout)}
        for name in list_names(self._layout.commits):
            if name.endswith(".done") and name.partition("-")[0] not in recorded:
                discard(os.path.join(self._layout.commits, name))

    def _create_staging(self) -> None:
        make_directory(self._layout.staging(self._generation))
        sync(self._layout.staging_root)
        highest = max(self._layout.fences(), default=0)
        if highest > self._generation:
            remove_tree(self._layout.staging(self._generation))
            raise Fenced(self._description, self._generation, highest)

    # -- commit

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        assert commit.generation == self._generation, (
            "a committer commits for the generation that opened it"
        )
        with disk_errors(
            f"committing checkpoint {commit.checkpoint} of the file sink {self._sink.operator}"
        ):
            self._verify()
            files = staged_files(commit.messages)
            outcome = (
                self._commit_once(commit, files)
                if self._transactional
                else self._append(commit.checkpoint, files, commit.messages)
            )
            self._remove_leftovers(commit.checkpoint)
        self._committed = commit.checkpoint
        return outcome

    def _commit_once(
        self, commit: Commit, files: tuple[StagedFile, ...]
    ) -> BatchCommitted | AlreadyCommitted:
        record = read_record(self._layout, commit.checkpoint)
        ours = False
        if isinstance(record, NoRecord):
            if any(later > commit.checkpoint for later in recorded_checkpoints(self._layout)):
                self._newest_with_files = (
                    None  # a pruned record may have had files: unknown which one was the last
                )
                return AlreadyCommitted()
            self._prepare(commit.messages)
            record, ours = self._write_record(commit, files)
        if not record.same_offsets(commit.offsets):
            raise CommitOffsetsDiffer(self._layout.record(commit.checkpoint), commit.checkpoint)
        if not is_done(self._layout, record):
            publish(self._layout, record)
        if record.files:
            self._newest_with_files = commit.checkpoint
        return BatchCommitted() if ours else AlreadyCommitted()

    def _write_record(
        self, commit: Commit, files: tuple[StagedFile, ...]
    ) -> tuple[CommitRecord, bool]:
        """Write the record of this batch; return the winning record and whether it is ours."""
        layout = self._layout
        self._check_staged(files)
        record = CommitRecord(
            lineage=commit.lineage,
            pipeline=commit.pipeline,
            sink=self._sink.operator,
            checkpoint=commit.checkpoint,
            generation=commit.generation,
            identity=os.urandom(6).hex(),
            offsets=commit.offsets,
            files=files,
        )
        draft = os.path.join(
            layout.staging(self._generation), f"c{commit.checkpoint}-{record.identity}.record"
        )
        failpoint("filesink.record.before")
        try:
            create_file(draft, record.encode())
            sync(layout.staging(self._generation))
            failpoint("filesink.record.middle")
            created = link(draft, layout.record(commit.checkpoint))
        except FileNotFoundError:
            # The staging directory was retired: from here on a higher generation decides.
            raise self._superseded() from None
        sync(layout.commits)
        failpoint("filesink.record.after")
        if isinstance(created, Created):
            return record, True
        winner = read_record(layout, commit.checkpoint)
        if isinstance(winner, NoRecord):
            raise self._superseded()  # only a higher generation rolls records back
        return winner, False

    def _check_staged(self, files: Sequence[StagedFile]) -> None:
        """Check that every staged file exists: a record must never name a missing file."""
        staging = self._layout.staging(self._generation)
        for file in files:
            path = os.path.join(staging, file.staged)
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                if not os.path.isdir(staging):
                    raise self._superseded() from None
                raise DiskTrouble(
                    f"the staged file {path} disappeared before it was committed"
                ) from None
            if size != file.bytes:
                raise DiskTrouble(
                    f"the staged file {path} has {size} bytes instead of {file.bytes}"
                )

    def _prepare(self, messages: Sequence[Any]) -> None:
        for directory in sorted({d for m in messages for d in m.get("directories", ())}):
            self._save_mode.prepare(self._layout, self._layout.final(directory))

    def _append(
        self, checkpoint: int, files: Sequence[StagedFile], messages: Sequence[Any]
    ) -> BatchCommitted:
        """Publish without a record, for at-least-once delivery.

        Existing names are never overwritten.
        """
        self._check_staged(files)
        self._prepare(messages)
        failpoint("filesink.append.before")
        suffixes = [raw["suffix"] for m in messages for raw in m.get("files", ())]
        changed: set[str] = set()
        for index, (file, suffix) in enumerate(zip(files, suffixes, strict=True)):
            staged = os.path.join(self._layout.staging(self._generation), file.staged)
            final = self._layout.final(file.final)
            changed.update(make_directory(os.path.dirname(final)), [os.path.dirname(final)])
            next(n for n in numbered_names(final, suffix) if isinstance(link(staged, n), Created))
            discard(staged)
            if index == 0 and len(files) > 1:
                failpoint("filesink.append.middle")
        sync_all(changed)
        if files:
            self._newest_with_files = checkpoint
        failpoint("filesink.append.after")
        return BatchCommitted()

    def _remove_leftovers(self, checkpoint: int) -> None:
        """Remove files of failed attempts, lost races and drafts of batches up to this one."""
        staging = self._layout.staging(self._generation)
        for name in list_names(staging):
            batch = name.partition("-")[0].removeprefix("c")
            if batch.isdigit() and int(batch) <= checkpoint:
                discard(os.path.join(staging, name))

    # -- after the batches

    def state(self) -> Any:
        """Return the last published batch, and the last one that had files."""
        return {"version": 1, "checkpoint": self._committed, "filled": self._newest_with_files}

    def retain(self, oldest: int) -> None:
        with disk_errors(f"pruning the commit records of the file sink {self._sink.operator}"):
            self._check_fence()
            failpoint("filesink.retain.before")
            for index, checkpoint in enumerate(
                [c for c in recorded_checkpoints(self._layout) if c < oldest][:_PRUNED_MAX]
            ):
                record = read_record(self._layout, checkpoint)
                if isinstance(record, CommitRecord) and is_done(self._layout, record):
                    discard(self._layout.record(checkpoint))
                    if index == 0:
                        failpoint("filesink.retain.middle")
                    discard(self._layout.done(checkpoint, record.identity))
            failpoint("filesink.retain.after")

    def finish(self) -> None:
        """Note that the output is complete. The records stay until close."""
        self._finished = True

    def close(self) -> None:
        """Remove the empty staging directory; after `finish`, remove all bookkeeping."""
        layout = self._layout
        with disk_errors(f"closing the file sink {self._sink.operator}"):
            if not self._finished:
                remove_empty(layout.staging(self._generation))
                return
            self._verify()
            failpoint("filesink.finish.before")
            remove_tree(layout.removal)
            with suppress(FileNotFoundError):
                os.rename(
                    layout.base, layout.removal
                )  # atomically: half of the records would be worse than none
            failpoint("filesink.finish.middle")
            remove_tree(layout.removal)
            remove_empty(os.path.dirname(layout.base))
            remove_empty(os.path.dirname(os.path.dirname(layout.base)))
            failpoint("filesink.finish.after")


def _generations(directory: str) -> list[int]:
    return [int(name[1:]) for name in list_names(directory)]
