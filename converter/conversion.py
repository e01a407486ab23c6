"""The conversion, step by step: sources, index, plan, shards, publish."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from converter import osal, pool, preparing, publish
from converter.errors import Interrupted, StagedFilesGoneError, Terminated
from converter.index import Index
from converter.journal import Journal
from converter.odd_images import convert_odd_images
from converter.options import Options, StrPath
from converter.outlook import plan_only
from converter.output import write_durably
from converter.plan import ShardLimits
from converter.progress import Progress
from converter.proof import begin_proof
from converter.published import REPORT_NAME, PublishedSplit
from converter.report import Report, make_report
from converter.shards import get_ready
from converter.sources.find import Found
from converter.staging import Staging
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
            run = plan_only if dry_run else _run
            return run(options, progress or Progress())
        finally:
            pool.shut_down()


def _run(options: Options, progress: Progress) -> Report:
    began = time.monotonic()
    found = preparing.find(options, progress)
    pool.start(get_ready, options.workers)  # takes as long as the import of TFDS, which is next
    space = Workspace(options.out, publish.dataset_version())
    preparing.require_short_paths(options, space)
    with space.locked():
        existing = preparing.to_join(options, found, space)
        options, found = preparing.without(existing, options, found, space)
        staging = preparing.choose_staging(options, found, space, progress)
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
    checksums = staging.checksums + preparing.compare_checksums(options, found, staging, progress)
    with begin_proof(found.sources, options.validate, progress, staging.checksums) as proof:
        index_began = time.monotonic()
        index = preparing.saved_index(options, found, staging, space, progress)
        indexing = time.monotonic() - index_began
        journal = _open_journal(options, index, staging, space)
        index = convert_odd_images(index, space.converted, options.workers)
        plans = preparing.make_plans(index, options.limits)
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
    reused = [journal.shards[name] for name in made.reused]
    report = report.timed(began, indexing, made.seconds, reused)
    write_durably(space.dataset / REPORT_NAME, report.to_json().encode("ascii"))
    if existing:
        space.join(job.places)
    else:
        space.commit()
    return report


def _open_journal(options: Options, index: Index, staging: Staging, space: Workspace) -> Journal:
    identity = preparing.identity(options, index, staging)
    journal = Journal(space.work)
    if options.restart and not journal.continues_restart(identity):
        space.discard_shards()
        journal = Journal(space.work)
    journal.require_identity(identity, index.files, options.restart)
    return journal
