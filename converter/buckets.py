"""Lays images into staged files, by the order in which the shards will want them.

The place of a record follows from the md5 of split and name, which is known as soon as an image's
header passes. Its leading bits choose the file, so that a shard needs a few files only, and files
are needed by a few neighbouring shards. They are written through a bounded buffer, one open at a
time.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from converter import osal
from converter.imagenet import SPLITS, split_of
from converter.output import output_errors
from converter.plan import record_key
from converter.sources.base import STAGED, SourceFile
from converter.sources.staged import NOTE_BYTES, note

BUCKETS: Final = {"train": 1024, "validation": 64, "test": 128}
"""As many as ImageNet 2012 has shards: 100 to 150 MB each."""
_BUFFERS: Final = {"train": 256 << 10, "validation": 1 << 20, "test": 1 << 20}
"""Bytes gathered for a bucket before they are written; on average half of that is in use."""
_WRITERS: Final = 2
_WRITES_AHEAD: Final = 8 * _WRITERS
_SYNCED_AT_ONCE: Final = 16
"""A file system makes many files durable in one go if it is asked for them at the same time."""
SUFFIX: Final = ".staged"


@dataclass
class _Bucket:
    file: SourceFile
    writer: ThreadPoolExecutor
    written: int
    parts: list[bytes] = field(default_factory=list)
    gathered: int = 0
    is_synced: bool = True

    @property
    def end(self) -> int:
        return self.written + self.gathered


class Buckets:
    """The staged files of one source while they are written.

    Args:
        folder: where they go.
        source: where the images come from, for messages.
        durable: length of each file, by name, that an earlier pass made durable. What belongs
            there is not written again, since the same source gives the same bytes.
    """

    def __init__(self, folder: Path, source: str, durable: dict[str, int]) -> None:
        self._folder = folder
        self._source = source
        self._durable = durable
        self._buckets: dict[tuple[str, int], _Bucket] = {}
        # While they write, the next images pass. A file has one of them, which keeps the order.
        self._writers = [ThreadPoolExecutor(1) for _ in range(_WRITERS)]
        self._writes: deque[Future[None]] = deque()
        self.added = 0

    def add(self, canonical: str, data: bytes, offset: int) -> tuple[SourceFile, int]:
        """Adds an image.

        Args:
            canonical: its official name.
            data: its bytes.
            offset: where they begin in the source.

        Returns:
            The file that it is in, whose size and time are not settled yet, and where in it.

        Raises:
            OutputError: it cannot be written.
        """
        split = split_of(canonical)
        key = int.from_bytes(record_key(split, canonical.encode())[:4], "big")
        number = key * BUCKETS[split] >> 32
        bucket = self._buckets.get((split, number)) or self._new(split, number)
        place = bucket.end + NOTE_BYTES
        bucket.parts += (note(data, offset), data)
        bucket.gathered += NOTE_BYTES + len(data)
        self.added += len(data)
        if bucket.gathered >= _BUFFERS[split]:
            self._flush(bucket)
        return bucket.file, place

    def _new(self, split: str, number: int) -> _Bucket:
        path = self._folder / f"{split}-{number:04d}{SUFFIX}"
        file = SourceFile(str(path), 0, 0, STAGED, self._source)
        bucket = _Bucket(file, self._writers[number % _WRITERS], 0)
        self._buckets[split, number] = bucket
        return bucket

    def _flush(self, bucket: _Bucket) -> None:
        path = Path(bucket.file.path)
        there = max(0, self._durable.get(path.name, 0) - bucket.written)
        parts, length = bucket.parts, bucket.gathered
        bucket.written += length
        bucket.parts, bucket.gathered = [], 0
        if there < length:
            bucket.is_synced = False
            if there:
                parts = [b"".join(parts)[there:]]
            self._writes.append(bucket.writer.submit(_append, path, parts))
            self._settle(_WRITES_AHEAD)

    def _settle(self, left: int) -> None:
        """Waits until no more than some writes are under way; raises where one failed."""
        while len(self._writes) > left:
            self._writes.popleft().result()

    def close(self) -> None:
        """Gives up what is not written yet."""
        for writer in self._writers:
            writer.shutdown(wait=True, cancel_futures=True)

    def make_durable(self) -> dict[str, int]:
        """Writes what is gathered and waits until all is on the disk.

        Returns:
            The length of each file by its name.

        Raises:
            OutputError: it cannot be written.
        """
        for split in SPLITS:
            for number in range(BUCKETS[split]):
                if bucket := self._buckets.get((split, number)):
                    self._flush(bucket)
        self._settle(0)
        unsynced = [bucket for bucket in self._buckets.values() if not bucket.is_synced]
        with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
            for _ in threads.map(_sync, [Path(bucket.file.path) for bucket in unsynced]):
                pass
        for bucket in unsynced:
            bucket.is_synced = True
        with output_errors(self._folder):
            osal.fsync_folder(self._folder)
        return {Path(b.file.path).name: b.written for b in self._buckets.values()}


def _append(path: Path, parts: list[bytes]) -> None:
    with output_errors(path):
        osal.append(path, parts)


def _sync(path: Path) -> None:
    with output_errors(path), open(path, "rb+") as file:
        os.fsync(file.fileno())
