"""The worker's task: one shard, from the source's bytes to a finished, durable file.

A task holds nothing but paths, options and its slice of the index, so it can run in any process,
in any order, or again. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from converter import osal
from converter.errors import DamagedImageError, printable
from converter.imagenet import image_name, wnids
from converter.images import CorruptImage, ImageFacts, validate
from converter.output import output_errors
from converter.readahead import ReadAhead
from converter.records import FRAMING_BYTES, frame_image
from converter.scan import Rows
from converter.sources.base import SourceFile
from converter.sources.reading import described_place

TEMPORARY_SUFFIX: Final = ".tmp"
VALIDATE_LEVELS: Final = ("off", "header", "decode")
ON_CORRUPT: Final = ("fail", "skip", "keep")
_WRITE_BUFFER: Final = 64 << 10
"""Longer pieces go to the file past the buffer, without a copy."""
_WRITEBACK: Final = 16 << 20
"""Bytes after which the disk may begin to write, beside the work on the next images."""


@dataclass(frozen=True)
class ShardTask:
    """What a worker needs to write one shard.

    Attributes:
        folder: the work folder.
        name: the shard's file name.
        split: the split it belongs to.
        files: the source files that `rows` counts in.
        rows: the images in the order of the records.
        validate: off, header or decode.
        on_corrupt: fail, skip or keep.
        parent: process id of the command.
        deadly: positions in `rows` of images that end the process which decodes them.
        trace: a file that the position of each image is written to before it is decoded.
    """

    folder: str
    name: str
    split: str
    files: tuple[SourceFile, ...]
    rows: Rows
    validate: str
    on_corrupt: str
    parent: int
    deadly: frozenset[int] = frozenset()
    trace: str = ""


@dataclass(frozen=True)
class ImageNote:
    """An image that is corrupt or of an unusual format.

    Attributes:
        split: its split.
        file_name: its name.
        wnid: its class, nothing in the test split.
        reason: what is wrong, or the format.
        path: the file that holds it.
        offset: where in it, in bytes.
    """

    split: str
    file_name: str
    wnid: str
    reason: str
    path: str
    offset: int

    def __str__(self) -> str:
        place = f"{self.path} at byte {self.offset}" if self.offset else self.path
        return printable(f"{self.file_name} ({place}): {self.reason}")


@dataclass(frozen=True)
class ShardResult:
    """What became of a shard.

    Attributes:
        name: the shard's file name.
        split: the split it belongs to.
        written: False where corrupt images stood in the way (`on_corrupt` fail).
        records: records in the file.
        num_bytes: serialized examples in bytes, without framing.
        size: length of the file in bytes.
        sha256: digest of the file.
        validate: how its images were validated.
        on_corrupt: what was to be done with corrupt ones.
        corrupt: the corrupt images.
        unusual: images in another format than TensorFlow's RGB or grayscale JPEG.
        mtime_ns: time of the file's last change in nanoseconds, 0 where it was not noted.
    """

    name: str
    split: str
    written: bool
    records: int
    num_bytes: int
    size: int
    sha256: str
    validate: str
    on_corrupt: str
    corrupt: tuple[ImageNote, ...] = ()
    unusual: tuple[ImageNote, ...] = ()
    mtime_ns: int = 0


def get_ready(_: int) -> None:
    """Does nothing: a worker that is to call it has imported all that writing shards needs."""


def write_shard(task: ShardTask) -> ShardResult:
    """Writes one shard: temporary file, fsync, rename, fsync of the folder.

    Raises:
        SourceError: an image's bytes cannot be read, or the source is not what was indexed.
        OutputError: the shard cannot be written.
    """
    target = Path(task.folder, task.name)
    temporary = Path(task.folder, task.name + TEMPORARY_SUFFIX)
    with contextlib.closing(_Writer(task)) as writer, output_errors(target):
        try:
            result = writer.write(temporary)
            if result.written:
                osal.exit_if_orphaned(task.parent)
                osal.replace(temporary, target)
                osal.fsync_folder(target.parent)
                result = replace(result, mtime_ns=target.stat().st_mtime_ns)
            else:
                osal.remove(temporary)
        except BaseException:
            with contextlib.suppress(OSError):
                osal.remove(temporary)
            raise
    return result


class _Writer:
    def __init__(self, task: ShardTask) -> None:
        self._task = task
        rows = task.rows
        columns = [rows[name].tolist() for name in ("label", "number", "file", "offset", "size")]
        self._labels, numbers, files, offsets, sizes = columns
        self._names = [
            image_name(task.split, *pair) for pair in zip(self._labels, numbers, strict=True)
        ]
        self._places = list(zip(files, self._names, offsets, sizes, strict=True))
        self._images = ReadAhead(task.files, self._places)
        self._corrupt: list[ImageNote] = []
        self._unusual: list[ImageNote] = []

    def write(self, temporary: Path) -> ShardResult:
        digest = hashlib.sha256()
        records = size = written_back = 0
        with open(temporary, "wb", buffering=_WRITE_BUFFER) as file:
            for name, label, data in self._accepted():
                if self._refused:
                    continue
                before, after = frame_image(name.encode(), label, data)
                for piece in (before, data, after):
                    file.write(piece)
                    digest.update(piece)
                records += 1
                size += len(before) + len(data) + len(after)
                if size - written_back >= _WRITEBACK:
                    file.flush()
                    osal.begin_writeback(file.fileno(), written_back, size - written_back)
                    written_back = size
            if not self._refused:
                file.flush()
                os.fsync(file.fileno())
        self._images.require_unchanged()
        return ShardResult(
            name=self._task.name,
            split=self._task.split,
            written=not self._refused,
            records=records,
            num_bytes=size - FRAMING_BYTES * records,
            size=size,
            sha256=digest.hexdigest(),
            validate=self._task.validate,
            on_corrupt=self._task.on_corrupt,
            corrupt=tuple(self._corrupt),
            unusual=tuple(self._unusual),
        )

    @property
    def _refused(self) -> bool:
        return bool(self._corrupt) and self._task.on_corrupt == "fail"

    def _accepted(self) -> Iterator[tuple[str, int, bytes]]:
        """Yields name, label and bytes of the images that become records."""
        for position, label in enumerate(self._labels):
            osal.exit_if_orphaned(self._task.parent)
            try:
                data = self._images.read(position)
            except DamagedImageError as error:
                if self._task.on_corrupt == "keep":  # nobody knows the bytes that should be kept
                    raise
                self._note(self._corrupt, position, str(error))
                continue
            if self._judge(data, position) or self._task.on_corrupt == "keep":
                yield self._names[position], label, data

    def _judge(self, data: bytes, position: int) -> bool:
        """Returns whether an image is sound; notes what is odd."""
        self._trace(b"%d" % position)
        try:
            facts = self._validated(data, position in self._task.deadly)
        except CorruptImage as error:
            self._note(self._corrupt, position, str(error))
            return False
        finally:
            self._trace(b"")
        if facts and (facts.format != "JPEG" or facts.mode == "CMYK"):
            self._note(self._unusual, position, f"{facts.format} {facts.mode}")
        return True

    def _trace(self, position: bytes) -> None:
        """Notes which image is decoded, for the case that this process does not survive it."""
        if self._task.trace:
            Path(self._task.trace).write_bytes(position)

    def _validated(self, data: bytes, deadly: bool) -> ImageFacts | None:
        if deadly:
            raise CorruptImage("the process that decodes it dies")
        if not data:
            raise CorruptImage("the image is empty")
        return None if self._task.validate == "off" else validate(data, self._task.validate)

    def _note(self, notes: list[ImageNote], position: int, reason: str) -> None:
        number, name, offset, _ = self._places[position]
        path, place = described_place(self._task.files[number], name, offset)
        label = self._labels[position]
        wnid = wnids()[label] if label >= 0 else ""
        notes.append(ImageNote(self._task.split, name, wnid, reason, path, place))

    def close(self) -> None:
        self._images.close()
