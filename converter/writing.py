"""Brings all shards about: those kept of earlier runs, those to write, and the run's history."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from converter import pool
from converter.errors import ConversionError, CorruptImagesError, Interrupted
from converter.journal import Journal, run_entry, stop_entry
from converter.options import Options
from converter.output import require_space
from converter.progress import Progress
from converter.proof import Proof
from converter.publish import METADATA_BYTES
from converter.staging import Staging
from converter.work import ShardJob, kept_shards, reusable_shards, write_shards


@dataclass(frozen=True)
class Written:
    """What a run did to have all shards.

    Attributes:
        reused: the shards kept of earlier runs.
        seconds: how long the others took.
    """

    reused: tuple[str, ...]
    seconds: float


@contextlib.contextmanager
def written(
    job: ShardJob,
    journal: Journal,
    options: Options,
    proof: Proof,
    staging: Staging,
    progress: Progress,
) -> Iterator[Written]:
    """Writes what is missing; the block runs when every shard is on the disk and all workers gone.

    Where an archive turns out not to be what its proof was to show, its images are decoded and
    its shards written anew.

    Raises:
        StagedFilesGoneError: staged files are gone that shards still to be written need.
        NoSpaceError: there is less room than the shards still to be written need.
        CorruptImagesError: images are corrupt and `on_corrupt` is fail.
        ConversionError: what stopped the work; everything journaled before stays.
    """
    reused = reusable_shards(job, journal, options.verify_resume, options.workers, progress)
    if journal.runs:
        progress.say(f"Continuing: {len(reused):,} of {len(job.places):,} shards are kept")
    staging.begin_shards(job, set(reused))
    _require_space(job, reused, staging, options.workers)
    with _journaled(journal, job, options, reused):
        seconds = _write(job, journal, reused, options.workers, staging, progress)
        if not proof.settle(progress):
            job = replace(job, levels=proof.levels)
            kept = kept_shards(job, journal)
            reused = [name for name in kept if name in reused]
            seconds += _write(job, journal, kept, options.workers, staging, progress)
        _refuse_corrupt(job, journal)
        pool.shut_down()
        yield Written(tuple(reused), seconds)


def _require_space(job: ShardJob, reused: Sequence[str], staging: Staging, workers: int) -> None:
    done = set(reused)
    todo = [name for name in job.places if name not in done]
    require_space(job.folder, staging.room_needed(job, todo, workers) + METADATA_BYTES)


def _write(
    job: ShardJob,
    journal: Journal,
    reused: Sequence[str],
    workers: int,
    staging: Staging,
    progress: Progress,
) -> float:
    began = time.monotonic()
    done = set(reused)
    names = [name for name in job.places if name not in done]
    images = sum(job.images(name) for name in job.places)
    earlier = sum(job.images(name) for name in reused)
    with progress.step("Shards", images, "images", earlier) as step:
        write_shards(job, names, journal, workers, progress, step, staging.release)
    return time.monotonic() - began


@contextlib.contextmanager
def _journaled(
    journal: Journal, job: ShardJob, options: Options, reused: Sequence[str]
) -> Iterator[None]:
    """Keeps the run's history; an orderly end means that all journaled shards are sound."""
    journal.add("run", run_entry({**options.reported(), "reused_shards": len(reused)}))
    try:
        yield
    except Interrupted as error:
        pool.shut_down()
        journal.add("stop", stop_entry("interrupted"))
        # The journal is read anew: the last line may have been written when the signal came.
        done = len(kept_shards(job, Journal(job.folder.parent)))
        raise type(error)(
            f"interrupted: {done:,} of {len(job.places):,} shards are done. "
            "Run the same command again to continue."
        ) from None
    except ConversionError as error:
        pool.shut_down()
        with contextlib.suppress(ConversionError):  # the disk may be the very reason
            journal.add("stop", stop_entry(str(error).splitlines()[0]))
        raise
    journal.add("stop", stop_entry("published"))


def _refuse_corrupt(job: ShardJob, journal: Journal) -> None:
    refused = [journal.shards[name] for name in job.places if not journal.shards[name].written]
    corrupt = [image for shard in refused for image in shard.corrupt]
    if corrupt:
        listed = "\n".join(f"    {image}" for image in corrupt)
        raise CorruptImagesError(
            f"corrupt images: {len(corrupt):,}; nothing was published:\n{listed}\n"
            "Run again with --on-corrupt skip (leave them out) or --on-corrupt keep (store them "
            f"as they are): only the shards concerned ({len(refused):,}) are written anew."
        )
