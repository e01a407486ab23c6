"""Makes the index: scans archives and the class tars inside them in parallel."""

from __future__ import annotations

from collections.abc import Sequence

from converter import pool
from converter.index import Index, build_index
from converter.progress import Progress
from converter.scan import Scan, scan_part
from converter.sources.base import Part

_BATCHES_PER_WORKER = 8

Scanned = list[tuple[Part, Scan]]


def make_index(
    parts: Sequence[Part],
    splits: Sequence[str] | None,
    expected: Sequence[str],
    workers: int,
    progress: Progress,
) -> Index:
    """Scans the archives, then the class tars found inside, and joins what they hold.

    Args:
        parts: the archives.
        splits: the wanted splits, None for all that are there.
        expected: the splits whose absence is a finding.
        workers: how many processes scan.
        progress: shows how far it is.

    Raises:
        SourceReadError: the system could not read an archive.
    """
    outer = _scan(parts, workers, progress, "archives")
    inner = [part for _, scan in outer for part in scan.inner]
    nested = _scan(inner, workers, progress, "class tars") if inner else []
    return build_index(outer + nested, splits, expected)


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
    return [(part, scan_part(part)) for part in parts]
