"""The stream layout: pipes and compressed tars, whose members are seen once, as they pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from converter import osal
from converter.errors import SourceError, UsageError, printable
from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS
from converter.sources.base import STAGED, STREAM, Damage, Listing, Part, Recognised, SourceFile
from converter.sources.compression import DamagedStreamError
from converter.sources.identify import download_state
from converter.sources.names import OFFICIAL_NAMES, splits_named
from converter.sources.stream import STDIN, Stream, StreamReader
from converter.sources.tar import list_members
from converter.sources.tar_layout import PEEKED_MEMBERS, recognise_names

A_PIPE: Final = "a pipe"
"""The layout of a pipe with a name, which may hold any split."""
_NONE: Final = np.zeros(0, np.int64)


class Sink(Protocol):
    """Takes the images of a stream as they pass."""

    def add(self, canonical: str, data: bytes, offset: int) -> tuple[SourceFile, int]:
        """Adds an image; returns the file that it went to, and where in it."""


def recognise(path: Path) -> Recognised | str | None:
    """Says whether a file is a pipe, or a compressed tar whose first members are ImageNet's.

    Returns:
        What it was taken for, what it is instead, or None where it is neither.

    Raises:
        SourceReadError: the file cannot be read.
        SourceError: it has an official name and is damaged where it begins.
    """
    if osal.is_pipe(path):  # reading it here would take bytes from it
        return Recognised(Part(str(path), kind=STREAM), A_PIPE, SPLITS, certain=False)
    plain = _unpacked_name(path.name)
    stream = Stream(str(path))
    try:
        if stream.compression is None:
            return None
        how = f"compressed with {stream.compression.name}"
        try:
            reader = stream.reader()
        except UsageError as error:
            return _not_unpacked(path, plain, f"it is {how}; {error}")
        names: list[str] = []
        try:
            list_members(
                reader, limit=PEEKED_MEMBERS, passing=lambda name, offset, size: names.append(name)
            )
        except DamagedStreamError as error:  # where it shows what it is, the pass says the rest
            if not splits_named(names):
                return _not_unpacked(path, plain, f"it is {how}, but {error}")
        finally:
            reader.close()
    finally:
        stream.close()
    found = recognise_names(names, Part(str(path), kind=STREAM), plain)
    if found is None:
        held = f"such as {printable(names[0])}" if names else "none that a tar has"
        why = f"it is {how}, and its members ({held}) are not those of ImageNet 2012"
        return _not_unpacked(path, plain, why)
    return Recognised(found.part, f"{found.layout}, {how}", found.splits, found.certain)


def _unpacked_name(name: str) -> str:
    """Returns what a compressed tar would be called without its compression."""
    stem, _, suffix = name.rpartition(".")
    if suffix in ("tgz", "tbz2", "txz", "tzst"):
        return f"{stem}.tar"
    return name if suffix == "tar" else stem


def _not_unpacked(path: Path, plain: str, why: str) -> str:
    """Returns why a file is no source; it must not pass unnoticed where its name is official.

    Raises:
        SourceError: its name says that it is one, but for the suffix of its compression.
    """
    if state := download_state(path, path.stat().st_size):
        why = f"{why}. {state}"
    if path.name != plain and plain in OFFICIAL_NAMES:
        raise SourceError(f"{printable(str(path))} cannot be read: {why}")
    return why


def standard_input(split: str) -> Recognised:
    """Returns standard input as the source of a split."""
    return Recognised(Part(STDIN, kind=STREAM), "standard input", (split,), certain=True)


class PassingTar:
    """A tar, or one inside it, whose members are sorted while they pass.

    Args:
        part: the tar.
        reader: where it is read from.
        sink: takes the images, None where only the index is wanted.
    """

    def __init__(self, part: Part, reader: StreamReader, sink: Sink | None) -> None:
        self._part = part
        self._reader = reader
        self._sink = sink

    def pass_members(self, take: Callable[[str, int, int], None]) -> Listing:
        """Lists the members; each is handed to `take` (name, offset, size) as it passes."""
        try:
            return list_members(self._reader, self._part.start, self._part.end, passing=take)
        except DamagedStreamError as error:
            return Listing((), _NONE, _NONE, (), Damage("damaged-stream", 0, str(error)))

    def within(self, part: Part) -> PassingTar:
        """Opens a tar that is a member of this one, while it passes."""
        return PassingTar(part, self._reader, self._sink)

    def listing(self) -> Listing:
        return self.pass_members(lambda name, offset, size: None)

    def divided(self) -> Sequence[Part]:
        return ()

    def head(self, name: str, offset: int, size: int) -> bytes:
        return self._reader.read_at(offset, min(size, 8))

    def located(self, name: str, canonical: str, offset: int, size: int) -> tuple[SourceFile, int]:
        if self._sink is None:
            return SourceFile(self._part.path, 0, 0, STREAM), offset
        data = self._reader.read_at(offset, size)
        if len(data) < size:  # the stream is cut, which the tar reader is about to notice
            return SourceFile(self._part.path, 0, 0, STAGED), offset
        return self._sink.add(canonical, data, offset)

    def inside(self, name: str, offset: int, size: int) -> Part | str:
        return self._part.member(name, offset, size)

    def close(self) -> None:
        """Whoever opened the stream closes it."""


def official_size(splits: Sequence[str]) -> int:
    """Returns how long the official archives of these splits are together, as far as known."""
    sizes = {archive.split: archive.size for archive in OFFICIAL_ARCHIVES if archive.size}
    return sum(sizes.get(split, 0) for split in splits)
