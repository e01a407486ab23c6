"""Chooses how each source is read: images at random, or all of it once from start to end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from converter import osal
from converter.errors import UsageError, printable
from converter.osal import RandomReader
from converter.sources.base import STREAM, TAR, Recognised

IO: Final = ("auto", "direct", "staged")
SMALL_BYTES: Final = 256 << 20
"""Below this a source fits into memory, and how it is read makes no difference."""

_IMAGE_BYTES: Final = 110 << 10
_RANDOM_READS: Final = 24
_SEQUENTIAL_BYTES: Final = 16 << 20
_PIECE: Final = 1 << 20
_GOLDEN: Final = 0.618033988749895
"""Multiples of it, modulo 1, jump to and fro and never come near each other."""
_WORTH_IT: Final = 5.0
"""Staging writes and reads everything once more; random reads must be this much slower."""


@dataclass(frozen=True)
class Choice:
    """How a source is read.

    Attributes:
        source: the source.
        is_staged: whether it is read once and laid aside.
        reason: why, for the person.
    """

    source: Recognised
    is_staged: bool
    reason: str

    def __str__(self) -> str:
        how = "staged: read once from start to end" if self.is_staged else "read in place"
        return printable(f"{self.source.part.path}: {how} ({self.reason})")


def choose(
    sources: Sequence[Recognised], io: str, begun: Sequence[bool], shards_begun: bool
) -> tuple[Choice, ...]:
    """Chooses for each source.

    Args:
        sources: what was found.
        io: auto, direct or staged.
        begun: for each, whether an earlier run has staged it, at least in part.
        shards_begun: whether an earlier run has begun to write shards.

    Raises:
        UsageError: direct is asked for and a source can only be read from start to end.
        SourceReadError: a source cannot be read.
    """
    return tuple(
        _choice(source, io, was_begun, shards_begun)
        for source, was_begun in zip(sources, begun, strict=True)
    )


def _choice(source: Recognised, io: str, begun: bool, shards_begun: bool) -> Choice:
    part = source.part
    if part.kind == STREAM:
        if io == "direct":
            raise UsageError(
                f"{printable(part.path)} can only be read from start to end, so --io direct is not "
                "possible: unpack it or save it to a file first, or leave the choice to --io auto"
            )
        return Choice(source, True, "it cannot be read at random")
    if part.kind != TAR:
        return Choice(source, False, f"a {part.kind} is always")
    if io != "auto":
        return Choice(source, io == "staged", f"--io {io}")
    if begun or shards_begun:
        return Choice(source, begun, "as the earlier run did")
    return Choice(source, *_measured(part.path))


def _measured(path: str) -> tuple[bool, str]:
    with RandomReader(path) as reader:
        if reader.size < SMALL_BYTES:
            return False, "it is small"
        known = osal.rotational(path)
        if known is not None:
            return known, "its disk has spinning platters" if known else "its disk has none"
        sequential, scattered = probe(reader)
    slow = sequential > _WORTH_IT * scattered
    return slow, (
        f"measured: {sequential / 1e6:,.0f} MB/s in order, {scattered / 1e6:,.0f} MB/s at random"
    )


def probe(reader: RandomReader) -> tuple[float, float]:
    """Measures how fast a file is read in order and at random; takes about half a second.

    Args:
        reader: a file of some hundred MB or more.

    Returns:
        Bytes per second in order, and of reads of an image's length at random places.

    Raises:
        SourceReadError: the file cannot be read.
    """
    start = (reader.size - _SEQUENTIAL_BYTES) // 2
    reader.forget(start, _SEQUENTIAL_BYTES)
    began = time.perf_counter()
    for place in range(start, start + _SEQUENTIAL_BYTES, _PIECE):
        reader.read_at(place, _PIECE)
    sequential = _SEQUENTIAL_BYTES / max(time.perf_counter() - began, 1e-9)
    spread = [number * _GOLDEN % 1 for number in range(1, _RANDOM_READS + 1)]
    places = [int(share * (reader.size - _IMAGE_BYTES)) for share in spread]
    for place in places:
        reader.forget(place, _IMAGE_BYTES)
    began = time.perf_counter()
    for place in places:
        reader.read_at(place, _IMAGE_BYTES)
    scattered = _RANDOM_READS * _IMAGE_BYTES / max(time.perf_counter() - began, 1e-9)
    return sequential, scattered
