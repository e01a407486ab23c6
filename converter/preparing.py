"""What is converted: sources, how they are read, index, plan; no shard is written yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from converter import osal
from converter.checksum import Checksum, check_archives
from converter.errors import OutputError, printable
from converter.identity import Identity, identity_of
from converter.index import Index
from converter.indexing import make_index
from converter.io_choice import choose
from converter.journal import JOURNAL, load_index, save_index
from converter.options import Options
from converter.output import command_line
from converter.plan import ShardLimits, SplitPlan, plan_split
from converter.progress import Progress
from converter.published import PublishedSplit
from converter.report import versions
from converter.sources.base import TAR, Part
from converter.sources.find import Found, find_sources
from converter.sources.stream import STDIN
from converter.staging import LONGEST_STAGED_NAME, Staging, staging_folder
from converter.workspace import LONGEST_NAME, Workspace


def require_short_paths(options: Options, space: Workspace) -> None:
    """Checks that this system can make the files with the longest paths.

    Raises:
        OutputError: names the path and what helps.
    """
    longest = [space.dataset / LONGEST_NAME]
    if options.staging is not None:
        longest.append(staging_folder(options.out, options.staging) / LONGEST_STAGED_NAME)
    for path in longest:
        if refusal := osal.length_refusal(str(path)):
            raise OutputError(refusal)


def find(options: Options, progress: Progress) -> Found:
    """Finds the sources and says what each was taken for.

    Raises:
        SourceError: nothing was found, or not what it was named for.
    """
    if options.workers > osal.MOST_WORKERS:
        progress.say(f"This system allows {osal.MOST_WORKERS} workers, so that many are used")
    found = find_sources(options.source, options.out, options.splits, options.named)
    for source in found.sources:
        progress.say(
            f"{', '.join(source.splits):<11} {printable(source.part.path)} ({source.layout})"
        )
    progress.say(f"{'output':<11} {printable(str(options.out))}")
    return found


def to_join(options: Options, found: Found, space: Workspace) -> dict[str, PublishedSplit]:
    """Returns the splits that are there already and stay."""
    if not options.restart:
        return space.published()
    space.require_kept(found.splits)
    return {}


def without(
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


def choose_staging(options: Options, found: Found, space: Workspace, progress: Progress) -> Staging:
    """Chooses what is read once, and says why."""
    folder = space.staging
    if options.staging is not None:
        folder = staging_folder(options.out, options.staging)
    begun = [bool(source.state()) for source in Staging.of(folder, found.sources).sources]
    shards_begun = (space.work / JOURNAL).exists() and not options.restart
    choices = choose(found.sources, options.io, begun, shards_begun)
    for choice in choices:
        progress.say(str(choice))
    return Staging.of(folder, [c.source for c in choices if c.is_staged], options.restart)


def compare_checksums(
    options: Options, found: Found, staging: Staging, progress: Progress
) -> tuple[Checksum, ...]:
    """Compares the tars with the official digests, where that was asked for.

    Raises:
        SourceReadError: a tar cannot be read.
    """
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


def saved_index(
    options: Options, found: Found, staging: Staging, space: Workspace, progress: Progress
) -> Index:
    """Returns the index that an earlier run saved, or makes and saves it.

    Raises:
        SourceError: something speaks against a conversion.
        OutputError: the index cannot be saved.
    """
    request = {
        "sources": [[part.path, part.kind] for part in found.parts],
        "staged": staging.tokens(),
        "splits": options.splits and list(options.splits),
        "allow_incomplete": options.allow_incomplete,
    }
    index = load_index(space.work, request)
    if index is None:
        index = scan(options, found, staging, progress)
        save_index(space.work, index, request)
    return index


def scan(options: Options, found: Found, staging: Staging, progress: Progress) -> Index:
    """Makes the index.

    Raises:
        SourceError: something speaks against a conversion.
    """
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


def identity(options: Options, index: Index, staging: Staging) -> Identity:
    """Returns what makes a later run the same conversion."""
    staged = staging.identity() if staging.sources else None
    return identity_of(index, options.limits, versions(), staged)


def make_plans(index: Index, limits: ShardLimits) -> tuple[SplitPlan, ...]:
    """Plans every split of an index."""
    return tuple(
        plan_split(
            split, index.names(split), rows["size"].astype("i8"), rows["label"].astype("i8"), limits
        )
        for split, rows in index.splits.items()
    )
