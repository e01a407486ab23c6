"""Writes all shards: hands out tasks, journals results, goes on after a worker has died."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from converter import osal, pool
from converter.careful import write_carefully
from converter.errors import ConversionError
from converter.index import Index
from converter.journal import Journal
from converter.output import output_errors
from converter.plan import SplitPlan
from converter.progress import Progress, Step
from converter.shards import (
    TEMPORARY_SUFFIX,
    VALIDATE_LEVELS,
    ShardResult,
    ShardTask,
    write_shard,
)

_DEATHS_BEFORE_CARE: Final = 2
_DEATHS_AT_NO_SHARD: Final = 5
_NO_SHARD: Final = ""


@dataclass(frozen=True)
class ShardJob:
    """How the shards of a conversion are written.

    Attributes:
        folder: where the shards go.
        index: where the images lie.
        plans: the layout of each split.
        levels: how the images of each split are validated: off, header or decode.
        on_corrupt: fail, skip or keep.
    """

    folder: Path
    index: Index
    plans: tuple[SplitPlan, ...]
    levels: Mapping[str, str]
    on_corrupt: str

    @cached_property
    def places(self) -> dict[str, tuple[SplitPlan, int]]:
        """The split's plan and the number of each shard, by file name, in order."""
        return {
            plan.filename(shard): (plan, shard)
            for plan in self.plans
            for shard in range(plan.shards)
        }

    def task(self, name: str) -> ShardTask:
        """Returns the task that writes a shard."""
        plan, shard = self.places[name]
        rows = self.index.splits[plan.split][plan.rows(shard)]
        used, rows["file"] = _renumbered(rows["file"].tolist())
        return ShardTask(
            folder=str(self.folder),
            name=name,
            split=plan.split,
            files=tuple(self.index.files[number] for number in used),
            rows=rows,
            validate=self.levels[plan.split],
            on_corrupt=self.on_corrupt,
            parent=os.getpid(),
        )

    def images(self, name: str) -> int:
        """Returns the number of images of a shard."""
        plan, shard = self.places[name]
        return len(plan.rows(shard))

    def file_size(self, name: str) -> int:
        """Returns the exact planned length of a shard's file in bytes."""
        plan, shard = self.places[name]
        return plan.file_size(shard)

    def settles(self, result: ShardResult) -> bool:
        """Returns whether a shard of an earlier run is what this run would write."""
        if not result.written or result.name not in self.places:
            return False
        wanted = self.levels[result.split]
        if VALIDATE_LEVELS.index(result.validate) < VALIDATE_LEVELS.index(wanted):
            return False
        return not result.corrupt or result.on_corrupt == self.on_corrupt


def _renumbered(numbers: list[int]) -> tuple[list[int], list[int]]:
    used = sorted(set(numbers))
    position = {number: place for place, number in enumerate(used)}
    return used, [position[number] for number in numbers]


def kept_shards(job: ShardJob, journal: Journal) -> list[str]:
    """Returns the journaled shards that this run would write too and that have their length."""
    kept = []
    for name, result in journal.shards.items():
        path = job.folder / name
        if job.settles(result) and path.is_file() and path.stat().st_size == result.size:
            kept.append(name)
    return kept


def reusable_shards(
    job: ShardJob, journal: Journal, check_all: bool, workers: int, progress: Progress
) -> list[str]:
    """Returns the shards of earlier runs that hold what this run would write.

    Those written since the last orderly stop or changed since they were written are read and
    compared with their journaled sha256, and with `check_all` every one is. What is damaged is
    removed at once, because the next run would not doubt it after an orderly stop of this one.

    Raises:
        OutputError: a damaged shard cannot be removed.
    """
    kept = kept_shards(job, journal)
    doubtful = [
        name
        for name in kept
        if check_all
        or name in journal.unchecked
        or (job.folder / name).stat().st_mtime_ns != journal.shards[name].mtime_ns
    ]
    if not doubtful:
        return kept
    damaged = set()
    tasks = [(name, str(job.folder / name)) for name in doubtful]
    with progress.step("Check", len(tasks), "shards") as step:
        for name, digest in pool.run(_digest, tasks, workers):
            if digest != journal.shards[name].sha256:
                damaged.add(name)
                progress.say(f"{name} is not as it was written; it is written anew")
                with output_errors(job.folder / name):
                    osal.remove(job.folder / name)
            step.advance(1, journal.shards[name].size)
    return [name for name in kept if name not in damaged]


def _digest(task: tuple[str, str]) -> tuple[str, str]:
    name, path = task
    return name, file_sha256(Path(path))


def file_sha256(path: Path) -> str:
    """Returns the sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write_shards(
    job: ShardJob,
    names: Sequence[str],
    journal: Journal,
    workers: int,
    progress: Progress,
    step: Step,
    journaled: Callable[[ShardResult], None],
) -> None:
    """Writes shards and journals each as it is finished.

    After a worker died, the shards it may have had in hand are tried again; one that is under
    way at two deaths is written carefully (see `careful`).

    Args:
        job: how they are written.
        names: which.
        journal: where each is noted.
        workers: how many are written at once.
        progress: is told of workers that died.
        step: shows how far it is.
        journaled: is told of each shard that is on the disk and in the journal.

    Raises:
        ConversionError: what stopped a worker; everything journaled before stays.
    """
    pending = dict.fromkeys(names)
    deaths: Counter[str] = Counter()

    def finished(result: ShardResult) -> None:
        journal.add("shard", result)
        journaled(result)
        del pending[result.name]
        step.advance(job.images(result.name), result.size)

    while pending:
        try:
            for result in pool.run(write_shard, map(job.task, list(pending)), workers):
                finished(result)
        except pool.WorkerDied as error:
            suspects = [name for name in pending if _left_behind(job.folder, name)]
            deaths.update(suspects or [_NO_SHARD])
            progress.say("A worker process ended unexpectedly; its shards are tried again")
            if deaths[_NO_SHARD] >= _DEATHS_AT_NO_SHARD:
                raise ConversionError(
                    f"worker processes keep dying before they begin a shard: {error}"
                ) from error
            for name in suspects:
                if deaths[name] >= _DEATHS_BEFORE_CARE:
                    finished(write_carefully(job.task(name)))


def _left_behind(folder: Path, name: str) -> bool:
    """Removes the temporary file of a shard that a dead worker left; returns whether it did."""
    try:
        osal.remove(folder / (name + TEMPORARY_SUFFIX))
    except FileNotFoundError:
        return False
    return True
