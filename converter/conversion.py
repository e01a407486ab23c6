"""The conversion, step by step: sources, index, plan, shards, publish."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from converter import osal, pool, publish
from converter.checksum import Checksum, check_archives
from converter.errors import Interrupted, OutputError, StagedFilesGoneError, Terminated
from converter.identity import Identity, identity_of
from converter.index import Index
from converter.indexing import make_index
from converter.io_choice import choose
from converter.journal import JOURNAL, Journal, load_index, save_index
from converter.odd_images import convert_odd_images, holds_odd_images
from converter.options import Options, StrPath
from converter.outlook import foresee
from converter.output import command_line, write_durably
from converter.plan import ShardLimits, SplitPlan, plan_split
from converter.progress import Progress
from converter.proof import begin_proof
from converter.published import (
    REPORT_NAME,
    PublishedSplit,
)
from converter.report import Report, make_report, versions
from converter.shards import VALIDATE_LEVELS, ShardResult
from converter.sources.base import TAR, Part
from converter.sources.find import Found, find_sources
from converter.sources.stream import STDIN
from converter.staging import Staging, staging_folder
from converter.verify import digests_of
from converter.work import ShardJob
from converter.workspace import Workspace
from converter.writing import written


def convert(
    source: StrPath | Sequence[StrPath] | None = None,
    out: StrPath | None = None,
    *,
    workers: int | None = None,
    splits: str | Sequence[str] | None = None,
    validate: str = "decode",
    on_corrupt: str = "fail",
    allow_incomplete: bool = False,
    dry_run: bool = False,
    restart: bool = False,
    verify_resume: bool = False,
    checksum: bool = False,
    train: StrPath | None = None,
    validation: StrPath | None = None,
    test: StrPath | None = None,
    io: str = "auto",
    staging: StrPath | None = None,
    shard_limits: ShardLimits | None = None,
    progress: Progress | None = None,
) -> Report:
    """Converts the ImageNet 2012 archives to the dataset that `tfds.load("imagenet2012")` finds.

    Args:
        source: archives, or folders of them or of images, in any layout that the README lists; by
            default TFDS's manual folder under `out` (`downloads/manual`), then the current folder.
        out: a TFDS data_dir; by default `$TFDS_DATA_DIR` or `~/tensorflow_datasets`.
        workers: processes; by default one per CPU that this process may use.
        splits: of train, validation and test; by default train and validation, and test if found.
        validate: decode (every coded bit is read), header, off, or digest: an archive whose
            sha256 is the official one is not decoded, another one is.
        on_corrupt: fail (publish nothing), skip, or keep corrupt images.
        allow_incomplete: accept absent images, classes or splits; never a damaged archive.
        dry_run: index and plan, write nothing.
        restart: discard the work of earlier runs, and replace an existing dataset once the new
            one is complete. Interrupted, the same call continues.
        verify_resume: check the sha256 of every shard of earlier runs, not only of those written
            since the last orderly stop.
        checksum: read the archives once and compare them with the official digests.
        train: one source of the train split; `-` is standard input.
        validation: one source of the validation split.
        test: one source of the test split.
        io: direct (images are read at random), staged (a tar is read once from start to end and
            its images laid aside), or auto: staged for pipes, compressed tars and spinning disks.
        staging: where images are laid aside; by default in the work folder.
        shard_limits: bounds on the size of shards; by default those of TFDS.
        progress: what shows the steps; by default nothing does.

    Returns:
        What was done.

    Raises:
        UsageError: an argument is out of range.
        SourceError: the archives are missing, damaged, incomplete or unreadable.
        OutputError: the output cannot be written, is locked, or exists already.
        CorruptImagesError: images are corrupt and `on_corrupt` is fail.
        Interrupted: Ctrl-C or SIGTERM; finished shards are kept.
    """
    options = Options.make(
        source,
        out,
        workers,
        splits,
        shard_limits,
        staging,
        {"train": train, "validation": validation, "test": test},
        io=io,
        validate=validate,
        on_corrupt=on_corrupt,
        allow_incomplete=allow_incomplete,
        restart=restart,
        verify_resume=verify_resume,
        checksum=checksum,
    )
    with osal.stop_signals_raise(Interrupted, Terminated):
        try:
            run = _plan_only if dry_run else _run
            return run(options, progress or Progress())
        finally:
            pool.shut_down()


def _run(options: Options, progress: Progress) -> Report:
    began = time.monotonic()
    found = _find(options, progress)
    space = Workspace(options.out, publish.dataset_version())
    with space.locked():
        existing = _to_join(options, found, space)
        options, found = _without(existing, options, found, space)
        staging = _staging(options, found, space, progress)
        attempt = partial(_convert, began, options, found, staging, space, existing, progress)
        try:
            report = attempt()
        except StagedFilesGoneError as gone:
            progress.say(f"{gone}; the sources are staged anew")
            staging.discard()
            report = attempt()
    staging.discard()
    return report


def _convert(
    began: float,
    options: Options,
    found: Found,
    staging: Staging,
    space: Workspace,
    existing: Mapping[str, PublishedSplit],
    progress: Progress,
) -> Report:
    staging.bring_about(space.work, progress)
    checksums = staging.checksums + _checksums(options, found, staging, progress)
    with begin_proof(found.sources, options.validate, progress, staging.checksums) as proof:
        index = _index(options, found, staging, space, progress)
        journal = _open_journal(options, index, staging, space)
        index = convert_odd_images(index, space.converted)
        plans = make_plans(index, options.limits)
        job = ShardJob(space.dataset, index, plans, proof.levels, options.on_corrupt)
        if existing:
            space.take_back(job.places)
        with written(job, journal, options, proof, staging, progress) as made:
            shards = publish.shards_by_split(plans, journal.shards)
            publish.sweep(space.dataset, job.places)
            publish.write_metadata(space.dataset, shards, existing)
            others = digests_of(space.final, existing, options.workers, progress)
            publish.write_checksums(space.dataset, shards, others)
    osal.ignore_stop_signals()
    checksums = tuple(dict.fromkeys((*checksums, *proof.checksums)))
    report = make_report(space, options, index, shards, journal.runs, checksums, tuple(existing))
    report = report.timed(began, made.seconds, [journal.shards[name] for name in made.reused])
    write_durably(space.dataset / REPORT_NAME, report.to_json().encode("ascii"))
    if existing:
        space.join(job.places)
    else:
        space.commit()
    return report


def _staging(options: Options, found: Found, space: Workspace, progress: Progress) -> Staging:
    """Chooses what is read once, and says why."""
    folder = staging_folder(options.out, space.work, options.staging)
    begun = [bool(source.state()) for source in Staging.of(folder, found.sources).sources]
    shards_begun = (space.work / JOURNAL).exists() and not options.restart
    choices = choose(found.sources, options.io, begun, shards_begun)
    for choice in choices:
        progress.say(str(choice))
    return Staging.of(folder, [c.source for c in choices if c.is_staged], options.restart)


def _to_join(options: Options, found: Found, space: Workspace) -> dict[str, PublishedSplit]:
    """Returns the splits that are there already and stay."""
    if not options.restart:
        return space.published()
    space.require_kept(found.splits)
    return {}


def _without(
    existing: Mapping[str, PublishedSplit], options: Options, found: Found, space: Workspace
) -> tuple[Options, Found]:
    """Returns options and sources without the splits that the dataset has already."""
    if not existing:
        return options, found
    wanted = tuple(split for split in found.splits if split not in existing)
    if not wanted or any(split in existing for split in options.splits or ()):
        space.refuse_existing()
    left = tuple(
        source
        for source in found.sources
        if not (source.certain and set(source.splits).issubset(existing))
    )
    return replace(options, splits=wanted), replace(found, sources=left)


def _plan_only(options: Options, progress: Progress) -> Report:
    found = _find(options, progress)
    space = Workspace(options.out, publish.dataset_version())
    existing, refusal = {}, ""
    try:
        existing = _to_join(options, found, space)
        options, found = _without(existing, options, found, space)
    except OutputError as error:
        existing, refusal = {}, str(error)
    staging = Staging(space.staging)
    index = _scan(options, found, staging, progress)
    plans = make_plans(index, options.limits)
    level = options.validate if options.validate in VALIDATE_LEVELS else VALIDATE_LEVELS[0]
    job = ShardJob(
        space.dataset, index, plans, dict.fromkeys(index.splits, level), options.on_corrupt
    )
    shards = {plan.split: [_planned(plan, n) for n in range(plan.shards)] for plan in plans}
    checksums = _checksums(options, found, staging, progress)
    report = make_report(space, options, index, shards, [], checksums)
    about = holds_odd_images(index)
    identity = _identity(options, index, staging)
    outlook = foresee(space, job, identity, index, options.restart, existing, refusal, about)
    return report.foreseen(outlook, about)


def _find(options: Options, progress: Progress) -> Found:
    found = find_sources(options.source, options.out, options.splits, options.named)
    for source in found.sources:
        progress.say(f"{', '.join(source.splits):<11} {source.part.path} ({source.layout})")
    progress.say(f"{'output':<11} {options.out}")
    return found


def _checksums(
    options: Options, found: Found, staging: Staging, progress: Progress
) -> tuple[Checksum, ...]:
    if not options.checksum:
        return ()
    parts = _parts(found, staging)
    archives = [part.path for part in parts if part.kind == TAR]
    if len(archives) < len(parts):
        progress.say("checksum: only tars are compared, since official digests are of tars")
    return check_archives(archives, options.workers, progress)


def _parts(found: Found, staging: Staging) -> list[Part]:
    """Returns what is read in place."""
    staged = {source.path for source in staging.sources}
    return [part for part in found.parts if part.path not in staged]


def _index(
    options: Options, found: Found, staging: Staging, space: Workspace, progress: Progress
) -> Index:
    request = {
        "sources": [[part.path, part.kind] for part in found.parts],
        "staged": staging.tokens(),
        "splits": options.splits and list(options.splits),
        "allow_incomplete": options.allow_incomplete,
    }
    index = load_index(space.work, request)
    if index is None:
        index = _scan(options, found, staging, progress)
        save_index(space.work, index, request)
    return index


def _scan(options: Options, found: Found, staging: Staging, progress: Progress) -> Index:
    index = make_index(
        _parts(found, staging),
        options.splits,
        options.expected_splits,
        options.workers,
        progress,
        staging.scanned(),
    )
    places = [source.part.path for source in found.sources]
    named = [word for path in options.source or places for word in ("--source", path)]
    chosen = ("--splits", ",".join(options.splits)) if options.splits else ()
    list_all = "" if STDIN in places else command_line("inspect", *named, *chosen)
    index.refuse_unless_sound(options.allow_incomplete, list_all)
    return index


def _identity(options: Options, index: Index, staging: Staging) -> Identity:
    staged = staging.identity() if staging.sources else None
    return identity_of(index, options.limits, versions(), staged)


def _open_journal(options: Options, index: Index, staging: Staging, space: Workspace) -> Journal:
    identity = _identity(options, index, staging)
    journal = Journal(space.work)
    if options.restart and not journal.continues_restart(identity):
        space.discard_shards()
        journal = Journal(space.work)
    journal.require_identity(identity, index.files, options.restart)
    return journal


def make_plans(index: Index, limits: ShardLimits) -> tuple[SplitPlan, ...]:
    """Plans every split of an index."""
    return tuple(
        plan_split(
            split, index.names(split), rows["size"].astype("i8"), rows["label"].astype("i8"), limits
        )
        for split, rows in index.splits.items()
    )


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
