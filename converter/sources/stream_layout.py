"""The stream layout: pipes and compressed tars, whose members are seen once, as they pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from converter import osal
from converter.errors import SourceError, printable
from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS
from converter.sources.base import STAGED, STREAM, Damage, Listing, Part, Recognised, SourceFile
from converter.sources.compression import DamagedStreamError
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
        UsageError: a package is missing that unpacks it.
    """
    if osal.is_pipe(path):  # reading it here would take bytes from it
        return Recognised(Part(str(path), kind=STREAM), A_PIPE, SPLITS, certain=False)
    plain = Path(path.name.rpartition(".")[0])
    stream = Stream(str(path))
    try:
        if stream.compression is None:
            return None
        how = f"compressed with {stream.compression.name}"
        reader = stream.reader()
        names: list[str] = []
        try:
            list_members(
                reader, limit=PEEKED_MEMBERS, passing=lambda name, offset, size: names.append(name)
            )
        except DamagedStreamError as error:  # where it shows what it is, the pass says the rest
            if not splits_named(names) and plain.name not in OFFICIAL_NAMES:
                return f"it is {how}, but {error}"
            if not splits_named(names):
                raise SourceError(
                    f"{printable(str(path))} cannot be unpacked: {error}. Download or copy it "
                    "again, or move it away."
                ) from None
        finally:
            reader.close()
    finally:
        stream.close()
    found = recognise_names(names, Part(str(path), kind=STREAM), plain.name)
    if found is None:
        held = f"such as {printable(names[0])}" if names else "none that a tar has"
        return f"it is {how}, and its members ({held}) are not those of ImageNet 2012"
    return Recognised(found.part, f"{found.layout}, {how}", found.splits, found.certain)


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
        around = self._part.container
        container = f"{around}!{name}" if around else name
        return Part(self._part.path, container, offset, offset + size, STREAM)

    def close(self) -> None:
        """Whoever opened the stream closes it."""


def official_size(splits: Sequence[str]) -> int:
    """Returns how long the official archives of these splits are together, as far as known."""
    sizes = {archive.split: archive.size for archive in OFFICIAL_ARCHIVES if archive.size}
    return sum(sizes.get(split, 0) for split in splits)
