"""Streams: tars that are read from start to end only, out of a pipe, a file or compressed data.

A `StreamReader` offers what the tar reader needs of a file as long as it goes forward, so that
there is one tar reader, as strict here as there. Threads unpack and digest; a plain tar is read
where it is wanted, since two threads that both run Python code mostly wait for each other.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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

_PIECE: Final = 2 << 20
_PIECES_AHEAD: Final = 16
_KEPT_BEHIND: Final = (1 << 20) + (64 << 10)
"""How far back the tar reader may look: it judges what follows a hole in pieces of 1 MiB."""
_POLL_SECONDS: Final = 0.5


class _Ahead:
    """Lets a thread make pieces before they are asked for."""

    def __init__(self, pieces: Iterator[bytes], at_the_end: Callable[[], None]) -> None:
        self._at_the_end = at_the_end
        self._queue: queue.Queue[bytes | BaseException] = queue.Queue(_PIECES_AHEAD)
        self._stop = threading.Event()
        threading.Thread(target=self._make, args=(pieces,), daemon=True, name="ahead").start()

    def _make(self, pieces: Iterator[bytes]) -> None:
        last: bytes | BaseException = b""
        try:
            for piece in pieces:
                if not self._put(piece):
                    return
        except BaseException as error:
            last = error
        finally:
            self._at_the_end()
        self._put(last)

    def _put(self, piece: bytes | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(piece, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:  # lets signals in on Windows
                continue
            if isinstance(piece, BaseException):
                raise piece
            if not piece:
                return
            yield piece

    def close(self) -> None:
        """Lets the thread end."""
        self._stop.set()


class _Digests:
    """Computes digests in a thread of its own."""

    def __init__(self, with_md5: bool) -> None:
        self._hashes = [hashlib.sha256()]
        if with_md5:
            self._hashes.append(hashlib.md5(usedforsecurity=False))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="digest")
        self._pending: deque[Future[None]] = deque()

    def update(self, piece: bytes) -> None:
        self._pending.append(self._thread.submit(self._update, piece))
        while len(self._pending) > _PIECES_AHEAD:
            self._pending.popleft().result()

    def _update(self, piece: bytes) -> None:
        for digest in self._hashes:
            digest.update(piece)

    def hexdigests(self) -> tuple[str, str]:
        while self._pending:
            self._pending.popleft().result()
        found = [digest.hexdigest() for digest in self._hashes]
        return found[0], found[1] if len(found) > 1 else ""

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


class StreamReader:
    """Reads a stream forward; what lies up to 1 MiB behind the last read can be read again.

    Args:
        pieces: the bytes, in order.
        with_md5: whether md5 is computed, too.
    """

    def __init__(self, pieces: Iterable[bytes], *, with_md5: bool = False) -> None:
        self.size = ENDLESS
        self._pieces = iter(pieces)
        self._digests = _Digests(with_md5)
        self._window: deque[tuple[int, bytes]] = deque()
        self._end = 0
        self._error: BaseException | None = None

    def _take(self) -> None:
        """Takes the next piece into the window.

        Raises:
            DamagedStreamError: the stream is damaged here.
            SourceReadError: the system could not read it.
        """
        if self._error is not None:
            raise self._error
        try:
            piece = next(self._pieces, b"")
        except DamagedStreamError as error:
            self._error = DamagedStreamError(
                f"{error}, {self._end:,} bytes of the tar in it were good"
            )
            raise self._error from None
        except Exception as error:
            self._error = error
            raise
        if piece:
            self._digests.update(piece)
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
        if self._window and self._window[-1][0] <= offset:  # as nearly always
            start, piece = self._window[-1]
            return piece[offset - start : offset - start + size]
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

    def digests(self) -> tuple[str, str]:
        """Returns sha256 and md5 (nothing where it was not asked for) of the whole stream.

        Raises:
            ValueError: the stream has not been read to its end.
        """
        if self.size == ENDLESS:
            raise ValueError("the stream has not ended yet")
        return self._digests.hexdigests()

    def close(self) -> None:
        """Ends the thread that computes digests."""
        self._digests.close()


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
        self._ahead: _Ahead | None = None
        self.compression: Compression | None = compression_of(self.head[:LONGEST_MAGIC])

    def reader(self, *, with_md5: bool = False) -> StreamReader:
        """Returns what reads the (unpacked) tar.

        Raises:
            UsageError: a package is missing that unpacks it.
        """
        pieces: Iterable[bytes] = self._pieces()
        if self.compression is not None:
            self.compression.open()  # says at once what is missing
            self._ahead = _Ahead(unpacked(self._pieces(), self.compression), self._input.close)
            pieces = self._ahead
        return StreamReader(pieces, with_md5=with_md5)

    def _pieces(self) -> Iterator[bytes]:
        piece = self.head
        while piece:
            self.read += len(piece)
            yield piece
            piece = self._input.read(_PIECE)

    def close(self) -> None:
        """Closes the file, and ends the thread that unpacks it."""
        if self._ahead is not None:
            self._ahead.close()
        else:
            self._input.close()
