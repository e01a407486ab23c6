"""Writing so that it stays written, and saying clearly why it could not be."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from converter import osal
from converter.errors import NoSpaceError, OutputError, printable

WORK_PREFIX: Final = "incomplete.imagenet-convert_"
"""Begins the name of the folder with finished shards; TFDS ignores what begins so."""


def command_line(*arguments: str | os.PathLike[str]) -> str:
    """Returns a command of this package as it can be pasted into a shell."""
    words = (osal.quoted(printable(os.fspath(argument))) for argument in arguments)
    return " ".join(("imagenet-convert", *words))


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turns an operating-system error of the block into an `OutputError` that names the path.

    Raises:
        NoSpaceError: the file system has no room, or a quota is used up.
        OutputError: it cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: OSError) -> OutputError:
    shown = printable(str(path))
    kept = "Finished shards are kept." if _beside_work(path) else ""
    again = " ".join(("Make room and run the same command again.", kept)).strip()
    if error.errno == errno.ENOSPC:
        mount = osal.mount_of(path.parent)
        if osal.inodes_exhausted(mount):
            what = "no file entries (inodes) are left"
        else:
            what = f"{shutil.disk_usage(mount).free:,} bytes are free"
        return NoSpaceError(
            f"no space on {printable(mount)} while writing {shown}: {what}. {again}"
        )
    if error.errno == getattr(errno, "EDQUOT", -1):
        return NoSpaceError(
            f"the disk quota on {printable(osal.mount_of(path.parent))} is used up while writing "
            f"{shown}. {again}"
        )
    reasons = {
        errno.EFBIG: "the file size limit is exceeded (see `ulimit -f`)",
        errno.EROFS: f"{printable(osal.mount_of(path.parent))} is mounted read-only",
    }
    reason = reasons.get(error.errno or 0) or f"{error.strerror} (errno {error.errno})"
    advice = kept or "Check the path and its permissions, or choose another one."
    return OutputError(f"cannot write {shown}: {reason}. {advice}")


def _beside_work(path: Path) -> bool:
    """Returns whether a path lies in a work folder or beside one."""
    if any(part.startswith(WORK_PREFIX) for part in path.parts):
        return True
    return any(path.parent.glob(f"{WORK_PREFIX}*"))


def write_durably(path: Path, data: bytes) -> None:
    """Writes a small file as a whole: beside it, flushed to the disk, then renamed over it.

    Raises:
        OutputError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    with output_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            osal.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                osal.remove(temporary)
            raise
        osal.fsync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Makes a folder and its parents, durably.

    Raises:
        OutputError: it cannot be made.
    """
    missing = [place for place in (path, *path.parents) if not place.exists()]
    with output_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        for place in missing:
            osal.fsync_folder(place.parent)


def nearest_existing(path: Path) -> Path:
    """Returns a folder, or the nearest one above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def space_refusal(folder: Path, needed: int, remedy: str = "choose another --out") -> str:
    """Returns what speaks against writing so much, nothing where there is room.

    Args:
        folder: an existing folder on the output's file system.
        needed: bytes still to be written.
        remedy: what helps besides making room.
    """
    free = shutil.disk_usage(folder).free
    if free >= needed:
        return ""
    return (
        f"not enough space on {printable(osal.mount_of(folder))} for {printable(str(folder))}: "
        f"{needed:,} bytes are needed and {free:,} are free. Make room or {remedy}."
    )


def require_space(folder: Path, needed: int, remedy: str = "choose another --out") -> None:
    """Compares what will be written with what is free.

    Args:
        folder: an existing folder on the output's file system.
        needed: bytes still to be written.
        remedy: what else than making room helps.

    Raises:
        NoSpaceError: names the mount and both figures.
    """
    if refusal := space_refusal(folder, needed, remedy):
        raise NoSpaceError(refusal)
