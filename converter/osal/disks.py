"""What a path lies on: its mount or drive, what is free there, whether it spins."""

from __future__ import annotations

import os

SYS = "/sys"
"""Where Linux shows its devices."""


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
