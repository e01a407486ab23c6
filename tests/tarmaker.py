"""Builds tars for the tests: honest ones of every layout, and damage to them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping

Members = Iterable[tuple[str, bytes]]

BLOCK = 512


def tar(
    members: Members,
    *,
    prefix: str = "",
    tar_format: int = tarfile.USTAR_FORMAT,
    folders: bool = False,
    end: bool = True,
) -> bytes:
    """Returns a tar of regular files.

    Args:
        members: name and content of each.
        prefix: put before each name, such as `./` or `val/`.
        tar_format: of the constants in `tarfile`.
        folders: whether the prefix has a member of its own in front.
        end: whether the zero blocks stand at the end.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        if folders:
            folder = tarfile.TarInfo(prefix.rstrip("/") or ".")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        for name, data in members:
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        length = archive.offset
    return buffer.getvalue() if end else buffer.getvalue()[:length]


def nested(
    classes: Mapping[str, Members], *, prefix: str = "", extra: Members = (), end: bool = True
) -> bytes:
    """Returns a train tar: a class tar for each wnid, `extra` members in front."""
    inner = [(f"{wnid}.tar", tar(images)) for wnid, images in classes.items()]
    return tar([*extra, *inner], prefix=prefix, end=end)


def header_of(data: bytes, name: str) -> int:
    """Returns where the header of a member begins."""
    place = data.index(name.encode() + b"\0")
    return place - place % BLOCK


def flip(data: bytes, place: int, bit: int = 0) -> bytes:
    """Returns the data with one bit flipped."""
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def zero(data: bytes, start: int, end: int) -> bytes:
    """Returns the data with a span of zeros."""
    return data[:start] + bytes(end - start) + data[end:]
