"""Writing, renaming and removing files and folders."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable

from converter.osal.system import PLAIN, WINDOWS

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
_PARTS = 1024
"""Pieces that POSIX systems take in one write."""


def append(path: str | os.PathLike[str], parts: list[bytes]) -> None:
    """Appends to a file, which is made if it does not exist, and closes it.

    Raises:
        OSError: it cannot be written; how much of it was, is not known.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN, 0o666)
    try:
        length = sum(map(len, parts))
        done = os.writev(fd, parts) if hasattr(os, "writev") and len(parts) <= _PARTS else 0
        if done < length:
            rest = memoryview(b"".join(parts))[done:]
            while rest:
                rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Renames a file or folder over its target in one step.

    Raises:
        OSError: the rename is not possible.
    """
    _tried_again(lambda: os.replace(source, target), PermissionError)


def remove(path: str | os.PathLike[str], *, missing_ok: bool = False) -> None:
    """Removes a file.

    Args:
        path: the file.
        missing_ok: whether it may be gone already.

    Raises:
        OSError: it is not there, or cannot be removed.
    """
    try:
        _tried_again(lambda: os.unlink(path), PermissionError)
    except FileNotFoundError:
        if not missing_ok:
            raise


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes a folder with all that is in it.

    On Windows a file that somebody has open vanishes when it is closed; until then its folder is
    not empty.

    Raises:
        OSError: it is not there, or something in it cannot be removed.
    """
    _tried_again(lambda: shutil.rmtree(path), OSError)


def _tried_again(call: Callable[[], object], what: type[OSError]) -> None:
    """Does what a virus scanner or indexer may prevent for a moment, where such a thing happens.

    Windows refuses it as long as they hold the file: there it is tried for about two seconds.
    """
    for pause in PAUSES_SECONDS if WINDOWS else ():
        try:
            call()
        except FileNotFoundError:
            raise
        except what:
            time.sleep(pause)
        else:
            return
    call()


def begin_writeback(fd: int, offset: int, size: int) -> None:
    """Lets the system begin to put these bytes of a file on the disk, where it can be asked to.

    Linux does so when it is told that nobody will read them. An fsync at the end then waits for
    the last of them only.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # what is wrong is for the fsync to say
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Makes the entries of a folder durable, where the system knows such a thing.

    Raises:
        OSError: the disk failed; a file system without folder fsync (EINVAL) is not a failure.
    """
    if WINDOWS:
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
    return os.stat(entry.path) if WINDOWS else entry.stat()
