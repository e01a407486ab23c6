"""The worker's task: one shard, from the source's bytes to a finished, durable file.

A task holds nothing but paths, options and its slice of the index, so it can run in any process,
in any order, or again. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from converter import osal
from converter.errors import SourceChangedError, SourceReadError, printable
from converter.imagenet import image_name, wnids
from converter.images import CorruptImage, ImageFacts, validate
from converter.osal import RandomReader
from converter.output import output_errors
from converter.records import FRAMING_BYTES, frame_image
from converter.scan import Rows
from converter.sources.base import SourceFile

TEMPORARY_SUFFIX: Final = ".tmp"
VALIDATE_LEVELS: Final = ("off", "header", "decode")
ON_CORRUPT: Final = ("fail", "skip", "keep")
_READ_AHEAD_IMAGES: Final = 8
_WRITE_BUFFER: Final = 64 << 10
"""Longer pieces go to the file past the buffer, without a copy."""


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
        offset: where its bytes begin there.
    """

    split: str
    file_name: str
    wnid: str
    reason: str
    path: str
    offset: int

    def __str__(self) -> str:
        return printable(f"{self.file_name} ({self.path} at byte {self.offset}): {self.reason}")


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


def write_shard(task: ShardTask) -> ShardResult:
    """Writes one shard: temporary file, fsync, rename, fsync of the folder.

    Raises:
        SourceError: an image's bytes cannot be read, or the source is not what was indexed.
        OutputError: the shard cannot be written.
    """
    target = Path(task.folder, task.name)
    temporary = Path(task.folder, task.name + TEMPORARY_SUFFIX)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(_open_unchanged(file)) for file in task.files]
        with output_errors(target):
            try:
                result = _Writer(task, readers).write(temporary)
                _check_unchanged(task.files)
                if result.written:
                    osal.exit_if_orphaned(task.parent)
                    osal.replace(temporary, target)
                    osal.fsync_folder(target.parent)
                    result = replace(result, mtime_ns=target.stat().st_mtime_ns)
                else:
                    temporary.unlink()
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
    return result


def _open_unchanged(file: SourceFile) -> RandomReader:
    _check_unchanged((file,))
    return RandomReader(file.path)


def _check_unchanged(files: tuple[SourceFile, ...]) -> None:
    for file in files:
        try:
            now = SourceFile.of(file.path)
        except OSError as error:
            raise SourceReadError(
                f"{printable(file.path)} was indexed and is now gone: {error.strerror}"
            ) from error
        if now != file:
            raise SourceChangedError(
                f"{printable(file.path)} changed while it was converted "
                f"(size {file.size:,} to {now.size:,}, or its time); put the indexed file back, "
                "or start anew with --restart"
            )


@dataclass
class _Writer:
    task: ShardTask
    readers: list[RandomReader]
    corrupt: list[ImageNote] = field(default_factory=list)
    unusual: list[ImageNote] = field(default_factory=list)

    def write(self, temporary: Path) -> ShardResult:
        digest = hashlib.sha256()
        records = size = 0
        with open(temporary, "wb", buffering=_WRITE_BUFFER) as file:
            for name, label, data in self._images():
                if self._refused:
                    continue
                before, after = frame_image(name.encode(), label, data)
                for piece in (before, data, after):
                    file.write(piece)
                    digest.update(piece)
                records += 1
                size += len(before) + len(data) + len(after)
            if not self._refused:
                file.flush()
                os.fsync(file.fileno())
        return ShardResult(
            name=self.task.name,
            split=self.task.split,
            written=not self._refused,
            records=records,
            num_bytes=size - FRAMING_BYTES * records,
            size=size,
            sha256=digest.hexdigest(),
            validate=self.task.validate,
            on_corrupt=self.task.on_corrupt,
            corrupt=tuple(self.corrupt),
            unusual=tuple(self.unusual),
        )

    @property
    def _refused(self) -> bool:
        return bool(self.corrupt) and self.task.on_corrupt == "fail"

    def _images(self) -> Iterator[tuple[str, int, bytes]]:
        rows = self.task.rows
        columns = [rows[name].tolist() for name in ("label", "number", "file", "offset", "size")]
        places = list(zip(*columns[2:], strict=True))
        for number, offset, size in places[:_READ_AHEAD_IMAGES]:
            self.readers[number].will_need(offset, size)
        for position, (label, image_number) in enumerate(zip(*columns[:2], strict=True)):
            osal.exit_if_orphaned(self.task.parent)
            for number, offset, size in places[position + _READ_AHEAD_IMAGES :][:1]:
                self.readers[number].will_need(offset, size)
            name = image_name(self.task.split, label, image_number)
            number, offset, size = places[position]
            note = ImageNote(
                split=self.task.split,
                file_name=name,
                wnid=wnids()[label] if label >= 0 else "",
                reason="",
                path=self.readers[number].path,
                offset=offset,
            )
            data = self._read(note, self.readers[number], size)
            if self.task.trace:
                Path(self.task.trace).write_bytes(b"%d" % position)
            if self._accepted(data, note, position in self.task.deadly):
                yield name, label, data

    def _read(self, note: ImageNote, reader: RandomReader, size: int) -> bytes:
        data = reader.read_at(note.offset, size)
        if len(data) != size:
            raise SourceChangedError(
                f"{printable(note.path)} ends at byte {note.offset + len(data)}, inside "
                f"{note.file_name}, which was indexed with {size:,} bytes"
            )
        return data

    def _accepted(self, data: bytes, note: ImageNote, deadly: bool) -> bool:
        try:
            facts = self._validated(data, deadly)
        except CorruptImage as error:
            self._note(self.corrupt, note, str(error))
            return self.task.on_corrupt == "keep"
        if facts and (facts.format != "JPEG" or facts.mode == "CMYK"):
            self._note(self.unusual, note, f"{facts.format} {facts.mode}")
        return True

    def _validated(self, data: bytes, deadly: bool) -> ImageFacts | None:
        if deadly:
            raise CorruptImage("the process that decodes it dies")
        if not data:
            raise CorruptImage("the image is empty")
        return None if self.task.validate == "off" else validate(data, self.task.validate)

    @staticmethod
    def _note(notes: list[ImageNote], note: ImageNote, reason: str) -> None:
        notes.append(replace(note, reason=reason))
