"""Streams: tars that are read from start to end only, out of a pipe, a file or compressed data.

A `StreamReader` offers what the tar reader needs of a file as long as it goes forward, so that
there is one tar reader, as strict here as there. A thread reads ahead, unpacks and digests.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from converter import osal
from converter.sources.base import ENDLESS
from converter.sources.compression import (
    LONGEST_MAGIC,
    Compression,
    DamagedStreamError,
    compression_of,
    unpacked,
)

STDIN: Final = "standard input"
"""Stands for standard input in the place of a path; real ones are absolute."""

_PIECE: Final = 1 << 20
_PIECES_AHEAD: Final = 16
_KEPT_BEHIND: Final = (1 << 20) + (64 << 10)
"""How far back the tar reader may look: it judges what follows a hole in pieces of 1 MiB."""
_POLL_SECONDS: Final = 0.5


class StreamReader:
    """Reads a stream forward; what lies up to 1 MiB behind the last read can be read again.

    Args:
        pieces: the bytes, in order.
        path: what messages call it.
        with_md5: whether md5 is computed, too.
    """

    def __init__(self, pieces: Iterator[bytes], *, with_md5: bool = False) -> None:
        self.size = ENDLESS
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False) if with_md5 else None
        self._window: deque[tuple[int, bytes]] = deque()
        self._end = 0
        self._error: BaseException | None = None
        self._queue: queue.Queue[bytes | BaseException] = queue.Queue(_PIECES_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._read_ahead, args=(pieces,), daemon=True, name="read-ahead"
        )
        self._thread.start()

    def _read_ahead(self, pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                self._sha256.update(piece)
                if self._md5 is not None:
                    self._md5.update(piece)
                if not self._put(piece):
                    return
            self._put(b"")
        except BaseException as error:
            self._put(error)

    def _put(self, piece: bytes | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(piece, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def _take(self) -> None:
        """Takes the next piece into the window.

        Raises:
            DamagedStreamError: the stream is damaged here.
            SourceReadError: the system could not read it.
        """
        while self._error is None:
            try:
                piece = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:  # lets signals in on Windows
                continue
            break
        else:
            raise self._error
        if isinstance(piece, DamagedStreamError):
            piece = DamagedStreamError(f"{piece}, {self._end:,} bytes of the tar in it were good")
        if isinstance(piece, BaseException):
            self._error = piece
            raise piece
        if piece:
            self._window.append((self._end, piece))
            self._end += len(piece)
        else:
            self.size = self._end

    def read_at(self, offset: int, size: int) -> bytes:
        """Returns `size` bytes from `offset`, fewer only at the end.

        Raises:
            DamagedStreamError: the stream is damaged.
            SourceReadError: the system could not read it.
            ValueError: the bytes have passed already.
        """
        self._reach(offset, offset + size)
        parts = []
        for start, piece in self._window:
            if start < offset + size and start + len(piece) > offset:
                parts.append(piece[max(0, offset - start) : offset + size - start])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip_to(self, offset: int) -> None:
        """Goes on to an offset, or to the end.

        Raises:
            DamagedStreamError: the stream is damaged.
            SourceReadError: the system could not read it.
        """
        self._reach(offset, offset)

    def _reach(self, start: int, end: int) -> None:
        window = self._window
        while self._end < end and self.size == ENDLESS:
            self._take()
            while len(window) > 1 and window[1][0] <= start - _KEPT_BEHIND:
                window.popleft()
        if window and start < window[0][0]:
            raise ValueError(f"byte {start} of a stream has passed, it is at {self._end}")

    def ended(self) -> bool:
        """Returns whether the stream ends here, having read on."""
        self._reach(self._end, self._end + 1)
        return self.size != ENDLESS

    def digests(self) -> tuple[str, str]:
        """Returns sha256 and md5 (nothing where it was not asked for) of the whole stream.

        Raises:
            ValueError: the stream has not been read to its end.
        """
        if self.size == ENDLESS:
            raise ValueError("the stream has not ended yet")
        return self._sha256.hexdigest(), self._md5.hexdigest() if self._md5 else ""

    def close(self) -> None:
        """Lets the thread end; one that waits for a pipe ends with the process."""
        self._stop.set()


class Stream:
    """An opened stream: the pieces as they lie there, and what they unpack to.

    Args:
        path: a file, a pipe with a name, or `STDIN`.

    Attributes:
        compression: how it is compressed, None where it is not.
        read: bytes that were read so far, before unpacking.
        head: its first bytes, up to 64 KiB.

    Raises:
        SourceReadError: it cannot be opened or read.
    """

    HEAD: Final = 64 << 10

    def __init__(self, path: str) -> None:
        self.path = path
        self.read = 0
        self._input = osal.SequentialReader(None if path == STDIN else path)
        self.head = self._input.read(self.HEAD)
        self.compression: Compression | None = compression_of(self.head[:LONGEST_MAGIC])

    def reader(self, *, with_md5: bool = False) -> StreamReader:
        """Returns what reads the (unpacked) tar.

        Raises:
            UsageError: a package is missing that unpacks it.
        """
        pieces = self._pieces()
        if self.compression is not None:
            self.compression.open()  # says at once what is missing
            pieces = unpacked(pieces, self.compression)
        return StreamReader(pieces, with_md5=with_md5)

    def _pieces(self) -> Iterator[bytes]:
        piece = self.head
        while piece:
            self.read += len(piece)
            yield piece
            piece = self._input.read(_PIECE)

    def close(self) -> None:
        """Closes the file."""
        self._input.close()
