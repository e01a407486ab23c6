"""Reads a shard's images before they are needed, so that decoding does not wait for the storage.

Where reads are quick, the system is told what comes next and each image is read when its turn
comes. Where they turn out to be slow, as on network mounts, a few threads read ahead: waiting for
a server leaves the processor to the decoder.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from converter.sources.base import STAGED, SourceFile
from converter.sources.reading import ImageReader

Place = tuple[int, str, int, int]
"""Number of the file, official name, offset and size of an image: what `ImageReader.read` takes."""

_HINTED: Final = 8
_JUDGED: Final = 12
_SLOW_SECONDS: Final = 0.001
"""A mean read above this is slower than a decode; one from the page cache takes a fiftieth."""
_THREADS: Final = 6
_AHEAD: Final = 12
_BUDGET: Final = 24 << 20
"""Bytes that wait to be decoded."""
_OPEN_PER_THREAD: Final = 4


class ReadAhead:
    """Hands out the bytes of images in their order.

    Args:
        files: what images are read from.
        places: where each image is.
    """

    def __init__(self, files: Sequence[SourceFile], places: Sequence[Place]) -> None:
        self._files, self._places = files, places
        self._reader = ImageReader(files)
        self._recent: deque[float] = deque(maxlen=_JUDGED)
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._readers: list[ImageReader] = []
        self._pending: deque[Future[bytes]] = deque()
        self._next = self._waiting = 0

    def _warm(self) -> None:
        """Lets staged files be read in order beforehand: what a shard needs of them lies close."""
        spans: dict[int, tuple[int, int]] = {}
        for number, _, offset, size in self._places:
            if self._files[number].kind == STAGED:
                start, end = spans.get(number, (offset, offset))
                spans[number] = (min(start, offset), max(end, offset + size))
        for number, span in spans.items():
            self._reader.warm(number, *span)

    def read(self, position: int) -> bytes:
        """Returns the bytes of an image; they are asked for in order, each once.

        Raises:
            SourceReadError: it cannot be read.
            SourceChangedError: its file is not what was indexed.
            DamagedImageError: a zip notes another CRC for it.
        """
        if position == 0:
            self._begin()
        if self._threads:
            future = self._pending.popleft()
            self._waiting -= self._places[position][3]
            self._submit(self._threads)
            return future.result()
        for place in self._places[position + _HINTED : position + _HINTED + 1]:
            self._reader.will_need(*place)
        began = time.perf_counter()
        data = self._reader.read(*self._places[position])
        self._recent.append(time.perf_counter() - began)
        if len(self._recent) == _JUDGED and sum(self._recent) > _JUDGED * _SLOW_SECONDS:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="read-ahead")
            self._next = position + 1
            self._submit(self._threads)
        return data

    def _begin(self) -> None:
        self._warm()
        for place in self._places[:_HINTED]:
            self._reader.will_need(*place)

    def require_unchanged(self) -> None:
        """Checks that the files are as they were indexed; see `ImageReader`."""
        self._reader.require_unchanged()

    def _submit(self, threads: ThreadPoolExecutor) -> None:
        while self._next < len(self._places) and len(self._pending) < _AHEAD:
            size = self._places[self._next][3]
            if self._pending and self._waiting + size > _BUDGET:
                return
            self._waiting += size
            self._pending.append(threads.submit(self._read_in_thread, self._next))
            self._next += 1

    def _read_in_thread(self, position: int) -> bytes:
        reader: ImageReader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = ImageReader(self._files, _OPEN_PER_THREAD)
            self._readers.append(reader)
        return reader.read(*self._places[position])

    def close(self) -> None:
        """Ends the threads and closes all files."""
        if self._threads:
            self._threads.shutdown(wait=True, cancel_futures=True)
        for reader in (self._reader, *self._readers):
            reader.close()
