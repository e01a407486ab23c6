"""Windows's rules for files, imitated on Linux: what is open anywhere is not renamed or removed.

As a `sitecustomize` module on the path it holds in a command and all of its workers. Calls that
Windows does not have are absent, too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

_replace, _unlink = os.replace, os.unlink


def _open_paths() -> Iterator[str]:
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            for number in os.listdir(f"/proc/{process}/fd"):
                yield os.readlink(f"/proc/{process}/fd/{number}")
        except OSError:  # it ended, or is not ours
            continue


def refuse_if_open(path: Any) -> None:
    """Raises what Windows raises where a file, or one in a folder, is open in any process."""
    place = os.path.realpath(path)
    for other in _open_paths():
        if other == place or other.startswith(place + os.sep):
            raise PermissionError(errno.EACCES, f"{other} is used by another process", place)


def replace(source: Any, target: Any, **options: Any) -> None:
    refuse_if_open(source)
    refuse_if_open(target)
    _replace(source, target, **options)


def unlink(path: Any, **options: Any) -> None:
    if "dir_fd" not in options:
        refuse_if_open(path)
    _unlink(path, **options)


def impose() -> None:
    """Makes the rules hold in this process."""
    vars(os).update(replace=replace, unlink=unlink, remove=unlink)
    for name in ("pread", "posix_fadvise", "writev", "major"):
        delattr(os, name)


if __name__ == "sitecustomize":
    impose()
