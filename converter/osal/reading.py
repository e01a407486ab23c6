"""Reading files and pipes: at any offset where the system can, and without changing a byte."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from converter.errors import SourceReadError, printable
from converter.osal.system import PLAIN, WINDOWS

READ_PAUSE_SECONDS = 0.25
_READ_ATTEMPTS = 4
_PIPE_BYTES = 1 << 20
_PIECE_BYTES = 4 << 20


class RandomReader:
    """A file opened read-only for reads at any offset, safe to share between threads.

    Args:
        path: the file.

    Raises:
        SourceReadError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | PLAIN)
            status = os.fstat(self._fd)
            self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        except OSError as error:
            raise SourceReadError(
                f"cannot open {printable(self.path)}: {error.strerror}"
            ) from error
        self._lock = threading.Lock()

    def read_at(self, offset: int, size: int) -> bytes:
        """Returns `size` bytes from `offset`, fewer only at the end of the file.

        An I/O error is tried again a few times with a growing pause, since network mounts and
        tired disks often answer the second time.

        Raises:
            SourceReadError: the system kept failing; names file, offset and reason.
        """
        for attempt in range(1, _READ_ATTEMPTS + 1):
            try:
                return self._read_fully(offset, size)
            except OSError as error:
                if attempt == _READ_ATTEMPTS:
                    raise SourceReadError(
                        f"cannot read {printable(self.path)} at byte {offset}: "
                        f"{error.strerror} (errno {error.errno}), {attempt} attempts"
                    ) from error
                time.sleep(READ_PAUSE_SECONDS * attempt)
        raise AssertionError("unreachable")

    def _read_fully(self, offset: int, size: int) -> bytes:
        data = self._read_once(offset, size)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size:
            data = self._read_once(offset + done, size - done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    if hasattr(os, "pread"):

        def _read_once(self, offset: int, size: int) -> bytes:
            return os.pread(self._fd, size, offset)

    else:

        def _read_once(self, offset: int, size: int) -> bytes:
            with self._lock:
                os.lseek(self._fd, offset, os.SEEK_SET)
                return os.read(self._fd, size)

    def pieces(self) -> Iterator[bytes]:
        """Yields the whole file in order, some MiB at a time.

        Raises:
            SourceReadError: the system kept failing.
        """
        for offset in range(0, self.size, _PIECE_BYTES):
            yield self.read_at(offset, _PIECE_BYTES)

    def skip_to(self, offset: int) -> None:
        """Does nothing: every read says where it begins."""

    def will_need(self, offset: int, size: int) -> None:
        """Hints that these bytes are read soon; does nothing where there is no such hint."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # what is wrong is for the read to say
                os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    def forget(self, offset: int, size: int) -> None:
        """Asks the system to drop these bytes from its memory, so that a measurement is one."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Closes the file; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RandomReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SequentialReader:
    """A file or pipe that is read from its start to its end.

    Args:
        path: a file or a pipe with a name, which is waited for; None for standard input.

    Raises:
        SourceReadError: it cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self.path = "standard input" if path is None else path
        self._at, self._buffer = 0, bytearray()
        try:
            fd = os.dup(_stdin()) if path is None else os.open(path, os.O_RDONLY | PLAIN)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise SourceReadError(f"cannot open {printable(self.path)}: {why}") from error
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ"), _PIPE_BYTES)  # noqa: B009
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        self._file = io.FileIO(fd)

    def read(self, size: int) -> bytes:
        """Returns the next `size` bytes, fewer only at the end.

        Raises:
            SourceReadError: the system could not read it.
        """
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        room, done = memoryview(self._buffer), 0
        try:
            while done < size and (got := self._file.readinto(room[done:size])) != 0:
                if got is None:  # whoever shares the pipe set it not to wait
                    select.select([self._file], [], [])
                    continue
                done += got
        except OSError as error:
            raise SourceReadError(
                f"cannot read {printable(self.path)} at byte {self._at + done}: {error.strerror} "
                f"(errno {error.errno})"
            ) from error
        self._at += done
        return bytes(room[:done])

    def close(self) -> None:
        """Closes it; harmless when done twice."""
        self._file.close()


def _stdin() -> int:
    """Returns the descriptor of standard input, which on Windows is made to pass every byte."""
    if sys.stdin is None:
        raise ValueError("it is closed")
    number = sys.stdin.fileno()
    if WINDOWS:
        import msvcrt

        getattr(msvcrt, "setmode")(number, getattr(os, "O_BINARY"))  # noqa: B009
    return number


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a pipe with a name, or another thing that cannot seek."""
    mode = os.stat(path).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)
