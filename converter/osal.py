"""The operating-system layer: every call that differs between Linux, macOS and Windows.

Nothing else in this package asks which system it runs on.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType

from converter.errors import SourceReadError, printable

_WINDOWS = sys.platform == "win32"
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Every byte as it is, and not for programs that are started."""
_READ_ATTEMPTS = 4
_READ_PAUSE_SECONDS = 0.25
_PARENT_CHECK_SECONDS = 0.2
_PIPE_BYTES = 1 << 20
_PIECE_BYTES = 4 << 20
_PARTS = 1024
"""Pieces that POSIX systems take in one write."""
SYS = "/sys"
"""Where Linux shows its devices."""


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
            self._fd = os.open(self.path, os.O_RDONLY | _PLAIN)
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
                time.sleep(_READ_PAUSE_SECONDS * attempt)
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
            fd = os.dup(_stdin()) if path is None else os.open(path, os.O_RDONLY | _PLAIN)
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
            while done < size and (got := self._file.readinto(room[done:size])):
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
    if _WINDOWS:
        import msvcrt

        getattr(msvcrt, "setmode")(number, getattr(os, "O_BINARY"))  # noqa: B009
    return number


def append(path: str | os.PathLike[str], parts: list[bytes]) -> None:
    """Appends to a file, which is made if it does not exist, and closes it.

    Raises:
        OSError: it cannot be written; how much of it was, is not known.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _PLAIN, 0o666)
    try:
        length = sum(map(len, parts))
        done = os.writev(fd, parts) if hasattr(os, "writev") and len(parts) <= _PARTS else 0
        if done < length:
            rest = memoryview(b"".join(parts))[done:]
            while rest:
                rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a pipe with a name, or another thing that cannot seek."""
    mode = os.stat(path).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Renames a file or folder over its target in one step.

    On Windows a virus scanner or indexer may hold a new file for a moment, which makes the
    rename fail: there it is tried again for about two seconds.

    Raises:
        OSError: the rename is not possible.
    """
    for pause in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if _WINDOWS else ():
        try:
            os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    os.replace(source, target)


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Makes the entries of a folder durable, where the system knows such a thing.

    Raises:
        OSError: the disk failed; a file system without folder fsync (EINVAL) is not a failure.
    """
    if _WINDOWS:
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def status_of(entry: os.DirEntry[str]) -> os.stat_result:
    """Returns a file's status, which costs one look at it.

    A folder's entry on Windows may have the size and time that the file had a while ago.

    Raises:
        OSError: it is a link that leads nowhere, or may not be looked at.
    """
    return os.stat(entry.path) if _WINDOWS else entry.stat()


def quoted(argument: str) -> str:
    """Returns an argument as it is typed in this system's shell."""
    if not _WINDOWS:
        return shlex.quote(argument)
    return f'"{argument}"' if set(argument) & set(" &()^;,=%!'") else argument


def set_time_command(path: str, mtime_ns: int) -> str:
    """Returns the command that gives a file a time of last change.

    Args:
        path: the file.
        mtime_ns: the time in nanoseconds since 1970.
    """
    if _WINDOWS:  # PowerShell, from cmd, too; a file time counts 100 ns since 1601
        quoted_path = path.replace("'", "''")
        return (
            f"powershell -Command \"(Get-Item -LiteralPath '{quoted_path}').LastWriteTimeUtc = "
            f'[datetime]::FromFileTimeUtc({mtime_ns // 100 + 116_444_736_000_000_000})"'
        )
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(mtime_ns // 10**9))
    return f"touch -d {moment}.{mtime_ns % 10**9:09d}Z {quoted(path)}"


def mount_of(path: str | os.PathLike[str]) -> str:
    """Returns the mount point or drive that a path lies on."""
    place = os.path.realpath(path)
    while not os.path.ismount(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    return place


def rotational(path: str | os.PathLike[str]) -> bool | None:
    """Returns whether a file lies on a disk with spinning platters, None where nobody tells.

    Linux tells, of a partition by its disk and of a mapped device (LVM, encryption, RAID) by
    those below it. What a virtual disk says of itself is not believed where it says yes, since
    that is also the answer of those that know nothing of what they lie on.
    """
    number = os.stat(path).st_dev
    if not hasattr(os, "major"):
        return None
    return _spins(os.path.join(SYS, "dev", "block", f"{os.major(number)}:{os.minor(number)}"))


def _spins(device: str) -> bool | None:
    device = os.path.realpath(device)
    if os.path.exists(os.path.join(device, "partition")):
        device = os.path.dirname(device)
    try:
        below = os.listdir(os.path.join(device, "slaves"))
    except OSError:
        below = []
    if below:
        answers = [_spins(os.path.join(device, "slaves", name)) for name in below]
        return True if True in answers else None if None in answers else False
    try:
        with open(os.path.join(device, "queue", "rotational"), encoding="ascii") as file:
            spins = file.read().strip() == "1"
    except (OSError, ValueError):
        return None
    is_virtual = os.path.basename(device).startswith(("vd", "xvd", "loop", "ram", "zram", "nbd"))
    return None if spins and is_virtual else spins


def same_device(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Returns whether two existing paths share a file system, and so their free space."""
    return os.stat(first).st_dev == os.stat(second).st_dev


def inodes_exhausted(path: str | os.PathLike[str]) -> bool:
    """Returns whether the file system has no file entries left, where that can be told."""
    if not hasattr(os, "statvfs"):
        return False
    status = os.statvfs(path)
    return status.f_files > 0 and status.f_favail == 0


def begin_worker(parent: int) -> None:
    """Prepares a worker process: Ctrl-C is its parent's business, and it dies with its parent.

    An interrupted worker would take the next task, and an orphan would go on with those queued.

    Args:
        parent: process id of the command.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while True:
            exit_if_orphaned(parent)
            time.sleep(_PARENT_CHECK_SECONDS)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def exit_if_orphaned(parent: int) -> None:
    """Ends this process at once where the command that hands out the tasks is gone.

    Args:
        parent: process id of the command.
    """
    if not _parent_lives(parent):
        os._exit(1)


def _parent_lives(pid: int) -> bool:
    if pid == os.getpid():
        return True
    if _WINDOWS:  # there a dead parent's id is still reported by getppid
        return _windows_process_lives(pid)
    return os.getppid() == pid


def _windows_process_lives(pid: int) -> bool:
    import ctypes

    synchronize, timed_out = 0x00100000, 0x102
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 - absent from other systems' stubs
    handle = kernel.OpenProcess(synchronize, False, pid)
    if not handle:
        return False
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) == timed_out)
    finally:
        kernel.CloseHandle(handle)


def open_closed_streams() -> None:
    """Gives the standard streams that were closed somewhere to go.

    Otherwise the next file that is opened, a shard, takes the number of one, and what a library
    prints goes into it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)  # workers need them, too
    os.close(fd)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Holds Ctrl-C back while processes are started, which inherit that they do not see it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_signals() -> None:
    """Lets the final renames finish, within `stop_signals_raise`."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


class _StopHandler:
    """Raises at the first signal; those that follow are ignored, so that cleaning up can end."""

    def __init__(self, kinds: dict[signal.Signals, type[BaseException]]) -> None:
        self._kinds = kinds
        self.called = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.called = True
        for kind in self._kinds:
            signal.signal(kind, signal.SIG_IGN)
        raise self._kinds[signal.Signals(number)](
            "interrupted. Run the same command again to continue."
        )


@contextlib.contextmanager
def stop_signals_raise(
    on_interrupt: type[BaseException], on_terminate: type[BaseException]
) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into an exception while the block runs.

    Those that follow are ignored, until the end of the outermost such block. Outside of the main
    thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _StopHandler({signal.SIGINT: on_interrupt, signal.SIGTERM: on_terminate})
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, usual in before.items():
            if not (handler.called and isinstance(usual, _StopHandler)):
                signal.signal(number, usual)
