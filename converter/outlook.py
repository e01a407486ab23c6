"""What a run would find at its output: said by --dry-run, which writes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator

from converter import preparing, publish
from converter.errors import OutputError, printable
from converter.identity import Identity
from converter.index import Index
from converter.journal import JOURNAL, Journal, lock_holder
from converter.odd_images import holds_odd_images
from converter.options import Options
from converter.output import nearest_existing, space_refusal
from converter.plan import SplitPlan
from converter.progress import Progress
from converter.publish import METADATA_BYTES
from converter.published import PublishedSplit
from converter.report import Report, make_report
from converter.shards import VALIDATE_LEVELS, ShardResult
from converter.staging import Staging
from converter.work import ShardJob, kept_shards
from converter.workspace import Workspace


def plan_only(options: Options, progress: Progress) -> Report:
    """Indexes and plans, and says what a run would find at its output.

    Raises:
        SourceError: something speaks against a conversion.
    """
    found = preparing.find(options, progress)
    space = Workspace(options.out, publish.dataset_version())
    existing: dict[str, PublishedSplit] = {}
    refusal = ""
    try:
        preparing.require_short_paths(options, space)
        existing = preparing.to_join(options, found, space)
        options, found = preparing.without(existing, options, found, space)
    except OutputError as error:
        existing, refusal = {}, str(error)
    staging = Staging(space.staging)
    index = preparing.scan(options, found, staging, progress)
    plans = preparing.make_plans(index, options.limits)
    level = options.validate if options.validate in VALIDATE_LEVELS else VALIDATE_LEVELS[0]
    job = ShardJob(
        space.dataset, index, plans, dict.fromkeys(index.splits, level), options.on_corrupt
    )
    shards = {plan.split: [_planned(plan, n) for n in range(plan.shards)] for plan in plans}
    checksums = preparing.compare_checksums(options, found, staging, progress)
    report = make_report(space, options, index, shards, [], checksums)
    about = holds_odd_images(index)
    identity = preparing.identity(options, index, staging)
    outlook = _foresee(space, job, identity, index, options.restart, existing, refusal, about)
    return report.foreseen(outlook, about)


def _planned(plan: SplitPlan, shard: int) -> ShardResult:
    return ShardResult(
        name=plan.filename(shard),
        split=plan.split,
        written=False,
        records=len(plan.rows(shard)),
        num_bytes=plan.num_bytes[shard],
        size=plan.file_size(shard),
        sha256="",
        validate="",
        on_corrupt="",
    )


def _foresee(
    space: Workspace,
    job: ShardJob,
    identity: Identity,
    index: Index,
    restart: bool,
    joined: Collection[str],
    refusal: str,
    about: bool,
) -> tuple[str, ...]:
    """Returns what a run would find, a line each.

    Args:
        space: where it would write.
        job: the shards that it would write.
        identity: of the conversion.
        index: of its archives.
        restart: whether it would start anew.
        joined: the splits of the dataset that it would join.
        refusal: why it would be refused for the dataset that is there, or nothing.
        about: whether the planned sizes are not exact.
    """
    lines = [refusal and f"A run would be refused: {refusal}"]
    if holder := lock_holder(space.lock):
        lines.append(f"Another run works on this output now: {printable(holder)}")
    if joined:
        lines.append(
            f"A run would join {' and '.join(index.splits)} to the dataset, which holds "
            f"{' and '.join(joined)}"
        )
    elif restart and not refusal and space.final.exists():
        lines.append(f"A run would replace the dataset {printable(str(space.final))}")
    told, kept = _unfinished(space, job, identity, index, restart)
    return (*filter(None, (*lines, told)), *_space(space, job, kept, about))


def _unfinished(
    space: Workspace, job: ShardJob, identity: Identity, index: Index, restart: bool
) -> tuple[str, list[str]]:
    """Returns what becomes of the work that was begun, and its shards that are kept."""
    if not (space.work / JOURNAL).is_file():
        return "", []
    journal = Journal(space.work)
    if restart and not journal.continues_restart(identity):
        return f"A run would discard the unfinished work in {printable(str(space.work))}", []
    try:
        journal.refuse_another(identity, index.files)
    except OutputError as error:
        return f"A run would be refused: {error}", []
    kept = kept_shards(job, journal)
    return f"A run would continue: {len(kept):,} of {len(job.places):,} shards are kept", kept


def _space(space: Workspace, job: ShardJob, kept: Collection[str], about: bool) -> Iterator[str]:
    needed = METADATA_BYTES + sum(job.file_size(name) for name in job.places if name not in kept)
    place = nearest_existing(space.work)
    if refusal := space_refusal(place, needed):
        yield f"A run would be refused: {refusal}"
    else:
        free = shutil.disk_usage(place).free
        yield f"Space: {'about ' * about}{needed:,} bytes are needed and {free:,} are free"
    yield "Nothing was written (--dry-run)."
