"""Builds tars for the tests: honest ones of every layout, and damage to them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from typing import Final

Members = Iterable[tuple[str, bytes]]

BLOCK: Final = 512
V7_FORMAT: Final = -1
"""The oldest format, which tarfile reads but does not write: ustar without what ustar added."""
JUNK: Final = (("._.DS_Store", b"\0\x05\x16\x07" + bytes(100)), (".DS_Store", b"\0\0\0\x01Bud1"))
"""What a Mac leaves in an archive."""


def tar(
    members: Members,
    *,
    prefix: str = "",
    tar_format: int = tarfile.USTAR_FORMAT,
    folders: bool = False,
    links: Mapping[str, str] | None = None,
    end: bool = True,
) -> bytes:
    """Returns a tar of regular files.

    Args:
        members: name and content of each.
        prefix: put before each name, such as `./` or `val/`.
        tar_format: of the constants in `tarfile`, or V7_FORMAT.
        folders: whether the prefix has a member of its own in front.
        links: symbolic links that stand at the end, target by name.
        end: whether the zero blocks stand at the end.
    """
    buffer = io.BytesIO()
    places: list[int] = []
    v7 = tar_format == V7_FORMAT
    written = tarfile.USTAR_FORMAT if v7 else tar_format
    with tarfile.open(fileobj=buffer, mode="w", format=written) as archive:
        if folders:
            folder = tarfile.TarInfo(prefix.rstrip("/") or ".")
            folder.type = tarfile.DIRTYPE
            places.append(archive.offset)
            archive.addfile(folder)
        for name, data in members:
            places.append(archive.offset)
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            places.append(archive.offset)
            link = tarfile.TarInfo(prefix + name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        length = archive.offset
    data = buffer.getvalue() if end else buffer.getvalue()[:length]
    for place in places if v7 else ():
        data = patched(data, place, 257, bytes(BLOCK - 257))
    return data


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


def patched(data: bytes, header: int, place: int, field: bytes) -> bytes:
    """Returns the data with a field of a header replaced and its checksum made right.

    Args:
        data: a tar.
        header: where the header begins.
        place: where in the header the field begins.
        field: what to put there.
    """
    block = bytearray(data[header : header + BLOCK])
    block[place : place + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:header] + bytes(block) + data[header + BLOCK :]


def cut(data: bytes, length: int) -> bytes:
    """Returns the first bytes of the data."""
    return data[:length]


def flip(data: bytes, place: int, bit: int = 0) -> bytes:
    """Returns the data with one bit flipped."""
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def zero(data: bytes, start: int, end: int) -> bytes:
    """Returns the data with a span of zeros."""
    return data[:start] + bytes(end - start) + data[end:]


def repeat(data: bytes, start: int, end: int) -> bytes:
    """Returns the data with a span doubled."""
    return data[:end] + data[start:]


def drop(data: bytes, start: int, end: int) -> bytes:
    """Returns the data without a span."""
    return data[:start] + data[end:]


def swap(data: bytes, first: int, second: int, length: int) -> bytes:
    """Returns the data with two spans of one length in each other's place."""
    first, second = sorted((first, second))
    length = min(length, second - first, len(data) - second)
    one, other = data[first : first + length], data[second : second + length]
    return data[:first] + other + data[first + length : second] + one + data[second + length :]
