"""Reads images, whatever the layout; every reader of image bytes goes through here."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from converter.errors import SourceChangedError, SourceReadError, printable
from converter.osal import RandomReader
from converter.sources.base import FOLDER, STAGED, ZIP, SourceFile
from converter.sources.folder import respelled
from converter.sources.staged import origin_of, read_staged
from converter.sources.zip_layout import read_member

_OPEN_AT_ONCE: Final = 24

_WARMED_AT_ONCE: Final = 4 << 20


def place_of(file: SourceFile, name: str, offset: int) -> tuple[str, int]:
    """Returns the path of the file that holds an image, and where in it, in bytes.

    Args:
        file: as the index has it.
        name: the image's official name.
        offset: as the index has it.
    """
    if file.kind == FOLDER:
        return os.path.join(file.path, respelled(name, file.spelling)), 0
    return file.path, offset


def described_place(file: SourceFile, name: str, offset: int) -> tuple[str, int]:
    """Returns what messages call the place of an image: of a staged one, that in its source."""
    return origin_of(file, offset) if file.kind == STAGED else place_of(file, name, offset)


def is_current(file: SourceFile) -> bool:
    """Returns whether a file is known to be as it was indexed; of a folder that is not known.

    Whether staged files are those of the index is for `staging` to say: some are freed by and by.
    """
    if file.kind == STAGED:
        return True
    return file.kind != FOLDER and SourceFile.of(file.path, file.kind) == file


class ImageReader:
    """Reads images from the files of an index; few are open at a time.

    Args:
        files: what images are read from; a file's number is its position.
        open_at_once: how many files stay open; a shard of class tars has images in a thousand.
    """

    def __init__(self, files: Sequence[SourceFile], open_at_once: int = _OPEN_AT_ONCE) -> None:
        self._files = files
        self._open_at_once = open_at_once
        self._open: OrderedDict[str, RandomReader] = OrderedDict()

    def read(self, number: int, name: str, offset: int, size: int) -> bytes:
        """Returns the bytes of an image.

        Args:
            number: its file.
            name: its official name.
            offset: as the index has it.
            size: its length in bytes.

        Raises:
            SourceReadError: it cannot be read.
            SourceChangedError: the file is not what was indexed.
            DamagedImageError: a zip notes another CRC for it.
        """
        file = self._files[number]
        path, start = place_of(file, name, offset)
        reader = self._opened(file, path, offset, size)
        if file.kind == STAGED:
            return read_staged(reader, name, start, size)
        if file.kind == ZIP:
            return read_member(reader, name, start, size)
        data = reader.read_at(start, size)
        if file.kind == FOLDER:
            self._open.pop(path).close()
        if len(data) != size:
            raise SourceChangedError(
                f"{printable(path)} ends at byte {start + len(data)}, inside {name}, which was "
                f"indexed with {size:,} bytes"
            )
        return data

    def will_need(self, number: int, name: str, offset: int, size: int) -> None:
        """Hints that an image is read soon; `read` says what is wrong with it."""
        file = self._files[number]
        path, start = place_of(file, name, offset)
        with contextlib.suppress(SourceReadError, SourceChangedError):
            self._opened(file, path, offset, size).will_need(start, size)

    def warm(self, number: int, start: int, end: int) -> None:
        """Reads a range of a staged file in order, so that the system has it in memory.

        A shard takes its images from there in another order; a disk with spinning platters would
        crawl.
        """
        file = self._files[number]
        if file.kind == STAGED:
            reader = self._opened(file, file.path, 0, 0)
            for place in range(start, end, _WARMED_AT_ONCE):
                reader.read_at(place, min(_WARMED_AT_ONCE, end - place))

    def _opened(self, file: SourceFile, path: str, offset: int, size: int) -> RandomReader:
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        try:
            reader = RandomReader(path)
        except SourceReadError as error:
            if os.path.exists(path):
                raise
            raise _gone(path, "there is no such file") from error
        expected = (size, offset) if file.kind == FOLDER else (file.size, file.mtime_ns)
        if (reader.size, reader.mtime_ns) != expected:
            reader.close()
            raise _changed(path, expected[0], reader.size)
        self._open[path] = reader
        if len(self._open) > self._open_at_once:
            self._open.popitem(last=False)[1].close()
        return reader

    def require_unchanged(self) -> None:
        """Checks that the files are as they were indexed.

        Images in folders are checked as each is read.

        Raises:
            SourceReadError: one is gone.
            SourceChangedError: one has changed.
        """
        for file in self._files:
            if file.kind == FOLDER:
                continue
            try:
                now = SourceFile.of(file.path, file.kind)
            except OSError as error:
                raise _gone(file.path, error.strerror) from error
            if (now.size, now.mtime_ns) != (file.size, file.mtime_ns):
                raise _changed(file.path, file.size, now.size)

    def close(self) -> None:
        """Closes all files."""
        while self._open:
            self._open.popitem()[1].close()


def _gone(path: str, why: str | None) -> SourceReadError:
    return SourceReadError(f"{printable(path)} was indexed and is now gone: {why}")


def _changed(path: str, before: int, now: int) -> SourceChangedError:
    return SourceChangedError(
        f"{printable(path)} changed while it was converted (size {before:,} to {now:,}, or its "
        "time); put the indexed file back, or start anew with --restart"
    )
