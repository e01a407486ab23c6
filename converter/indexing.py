"""Makes the index: scans the sources, and what lies inside them, in parallel."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from converter import pool
from converter.findings import Finding
from converter.index import Index, build_index
from converter.progress import Progress
from converter.scan import Scan, scan_part, scan_passing
from converter.sources.base import STREAM, Part
from converter.sources.stream import Stream
from converter.sources.stream_layout import PassingTar

_BATCHES_PER_WORKER: Final = 8
_MOSTLY_IDLE: Final = 5
_GRANULARITY_SECONDS: Final = 0.01
_THREADS: Final = 6

Scanned = list[tuple[Part, Scan]]


def make_index(
    parts: Sequence[Part],
    splits: Sequence[str] | None,
    expected: Sequence[str],
    workers: int,
    progress: Progress,
    staged: Scanned | None = None,
) -> Index:
    """Scans the sources, then the archives and folders found inside, and joins what they hold.

    Args:
        parts: the sources.
        splits: the wanted splits, None for all that are there.
        expected: the splits whose absence is a finding.
        workers: how many processes scan.
        progress: shows how far it is.
        staged: what was scanned already, in passes over sources that are no parts here.

    Raises:
        SourceReadError: the system could not read a source.
        SourceChangedError: a source changed meanwhile.
    """
    scanned: Scanned = list(staged or ())
    for part in parts:
        if part.kind == STREAM:
            scanned += _pass_over(part, progress)
    parts = [part for part in parts if part.kind != STREAM]
    seen: set[str] = set()
    unit = "sources"
    while parts:
        parts, again = _unseen(parts, seen)
        level = _scan(parts, workers, progress, unit) if parts else []
        if again:
            noted = Finding("read-once", len(again), tuple(part.path for part in again))
            level.append((again[0], Scan({}, (), (noted,))))
        scanned += level
        parts = [inner for _, scan in level for inner in scan.inner]
        unit = "parts"
    return build_index(scanned, splits, expected)


def _pass_over(part: Part, progress: Progress) -> Scanned:
    """Scans what can only be read from start to end; it is read for nothing else."""
    stream = Stream(part.path)
    reader = stream.reader()
    try:
        with progress.step("Index", 1, "streams") as step:
            scanned = scan_passing(part, PassingTar(part, reader, None))
            step.advance(1, stream.read)
    finally:
        reader.close()
        stream.close()
    return scanned


def _unseen(parts: Sequence[Part], seen: set[str]) -> tuple[list[Part], list[Part]]:
    """Parts what is new from what links, or sources that overlap, lead to once more.

    A place is kept under its own name rather than a link's; loops end here.
    """
    unseen, again = [], []
    places = {part: os.path.realpath(part.path) for part in parts}
    for part in sorted(parts, key=lambda part: places[part] != part.path):
        if part.container or part.start:
            unseen.append(part)
        elif places[part] in seen:
            again.append(part)
        else:
            seen.add(places[part])
            unseen.append(part)
    return unseen, again


def _scan(parts: Sequence[Part], workers: int, progress: Progress, unit: str) -> Scanned:
    count = min(len(parts), workers * _BATCHES_PER_WORKER)
    batches = [parts[start::count] for start in range(count)]
    scanned: Scanned = []
    with progress.step("Index", len(parts), unit) as step:
        for batch in pool.run(_scan_batch, batches, workers):
            scanned += batch
            step.advance(len(batch))
    return scanned


def _scan_batch(parts: Sequence[Part]) -> Scanned:
    """Scans some parts one by one, or several at once where that means waiting for the storage."""
    began, busy = time.perf_counter(), time.process_time()
    scanned = [(part, scan_part(part)) for part in parts[:1]]
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    rest = parts[1:]
    if seconds < _MOSTLY_IDLE * busy + _GRANULARITY_SECONDS:
        return scanned + [(part, scan_part(part)) for part in rest]
    with ThreadPoolExecutor(_THREADS) as threads:
        return scanned + list(zip(rest, threads.map(scan_part, rest), strict=True))
