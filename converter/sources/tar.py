"""A strict tar reader: lists what an archive holds, and never takes damage for its end.

Python's tarfile stops in silence at a damaged header or a zero-filled hole. Here every header's
checksum is verified, and the end of an archive is believed only where nothing follows it. Formats:
v7, ustar (POSIX.1-1988), pax (POSIX.1-2001), GNU (its manual's "Basic Tar Format"). Where Python
and GNU tar disagree on an archive, the stricter one is followed.

A checksum is a sum: two bytes of a name that change places go unnoticed here. What a name says
is checked by the index. Bytes between a member's end and the next block are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from converter.errors import printable
from converter.osal import RandomReader
from converter.sources.tar_header import BLOCK, Header, parse_header, parse_pax

_LONGEST_EXTENSION: Final = 1 << 20
"""Bytes of a long name or a pax header; honest ones have some hundred."""
_ZEROS_AT_THE_END: Final = 64 << 20
"""Padding after the end of an archive; honest ones have 10 kB, rarely some MB."""
_HOLE_SEARCH: Final = 1 << 20
"""How far behind a hole the next member is looked for, to say what it is."""
_CHUNK: Final = 1 << 20
_REGULAR: Final = b"0\07"
_KINDS: Final = {
    "1": "hard link",
    "2": "symbolic link",
    "3": "device",
    "4": "device",
    "5": "folder",
    "6": "fifo",
    "D": "folder",
    "S": "sparse",
    "V": "volume label",
}
_WITHOUT_DATA: Final = "123456V"


@dataclass(frozen=True, slots=True)
class Damage:
    """Why an archive cannot be trusted.

    Attributes:
        kind: not-tar, empty, bad-header, hole, truncated or trailing-data.
        offset: where, in bytes from the start of the file.
        message: what, after which member, and how much of the archive was readable.
    """

    kind: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class OtherMember:
    """A member that is no regular file.

    Attributes:
        name: as the archive spells it.
        kind: folder, symbolic link, hard link, sparse, device, fifo or another.
        offset: where its header begins in the file.
    """

    name: str
    kind: str
    offset: int


@dataclass(frozen=True, slots=True)
class TarListing:
    """What an archive holds, up to the first damage.

    Attributes:
        names: the regular files, in the archive's order and spelling.
        offsets: where each one's bytes begin in the file.
        sizes: length of each in bytes.
        others: members of other kinds.
        damage: why what follows cannot be trusted, or None.
        has_end_marker: whether the archive ends with zero blocks, as it should.
    """

    names: list[str]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    others: list[OtherMember]
    damage: Damage | None
    has_end_marker: bool


def list_members(
    reader: RandomReader, start: int = 0, end: int | None = None, *, limit: int | None = None
) -> TarListing:
    """Lists the members of an archive, or of one that lies inside another.

    Args:
        reader: the file.
        start: first byte of the archive.
        end: byte after it, None for the end of the file. Lying beyond that is a truncation.
        limit: stop after so many regular files, without judging the rest.

    Raises:
        SourceReadError: the system could not read the file.
    """
    return _Walk(reader, start, reader.size if end is None else end).run(limit)


class _Damaged(Exception):
    def __init__(self, kind: str, offset: int, what: str) -> None:
        super().__init__(kind, offset, what)
        self.kind, self.offset, self.what = kind, offset, what


class _Walk:
    def __init__(self, reader: RandomReader, start: int, end: int) -> None:
        self._reader = reader
        self._start = start
        self._declared = end
        self._stop = min(end, reader.size)
        self._names: list[str] = []
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._others: list[OtherMember] = []
        self._last = b""

    def run(self, limit: int | None) -> TarListing:
        damage, marker = None, False
        try:
            marker = self._walk(limit)
        except _Damaged as found:
            damage = self._explain(found)
        return TarListing(
            self._names,
            np.array(self._offsets, np.int64),
            np.array(self._sizes, np.int64),
            self._others,
            damage,
            marker,
        )

    def _explain(self, found: _Damaged) -> Damage:
        whole = self._declared - self._start
        readable = f"{100 * (found.offset - self._start) / whole:.1f} %" if whole else "nothing"
        after = f'the last good member is "{_text(self._last)}"' if self._last else "no member"
        message = f"{found.what}; {after}; {readable} of the archive was readable"
        return Damage(found.kind, found.offset, printable(message))

    def _walk(self, limit: int | None) -> bool:
        """Lists everything; returns whether an end marker was there."""
        if self._stop <= self._start:
            raise _Damaged("empty", self._start, self._cut("the archive is empty"))
        at = self._start
        pax: dict[bytes, bytes] = {}
        common: dict[bytes, bytes] = {}
        while at < self._stop:
            block = self._reader.read_at(at, min(BLOCK, self._stop - at))
            if len(block) < BLOCK:
                raise _Damaged(
                    "truncated", at, self._cut(f"the archive ends at byte {at}, inside a header")
                )
            if not any(block):
                if pax:
                    raise _Damaged(
                        "bad-header", at, f"an extended header at byte {at} has no member"
                    )
                self._require_end(at)
                return True
            header = self._parse(block, at)
            if header.kind in "LKxXg":
                at = self._extension(header, at, common if header.kind == "g" else pax)
                continue
            at = self._member(header, block, at, {**common, **pax} if common or pax else pax)
            pax = {}
            if limit is not None and len(self._names) >= limit:
                return False
        if pax:
            raise _Damaged(
                "truncated", at, self._cut(f"the archive ends at byte {at}, before a member")
            )
        if self._declared > self._stop:
            raise _Damaged("truncated", at, self._cut(f"the file ends at byte {self._stop}"))
        return False

    def _cut(self, what: str) -> str:
        missing = self._declared - self._stop
        return (
            f"{what} ({missing:,} bytes of it lie beyond the end of the file)" if missing else what
        )

    def _parse(self, block: bytes, at: int) -> Header:
        try:
            return parse_header(block)
        except ValueError as error:
            if at == self._start:
                raise _Damaged("not-tar", at, f"this is no tar: {error} at byte {at}") from None
            raise _Damaged("bad-header", at, f"{error} at byte {at}") from None

    def _extension(self, header: Header, at: int, found: dict[bytes, bytes]) -> int:
        """Reads a long name or a pax header into `found`; returns where the next header is."""
        data = at + BLOCK
        if header.size > _LONGEST_EXTENSION:
            raise _Damaged(
                "bad-header", at, f"an extended header of {header.size:,} bytes at byte {at}"
            )
        if data + header.size > self._stop:
            raise _Damaged(
                "truncated", at, self._cut(f"the archive ends in an extended header at byte {at}")
            )
        payload = self._reader.read_at(data, header.size)
        if header.kind == "L":
            found[b"path"] = payload.split(b"\0")[0]
        elif header.kind != "K":
            try:
                found.update(parse_pax(payload))
            except ValueError as error:
                raise _Damaged("bad-header", at, f"{error} at byte {at}") from None
        found.setdefault(b"", b"")  # an extension without content still wants its member
        return data + _padded(header.size)

    def _member(self, header: Header, block: bytes, at: int, pax: dict[bytes, bytes]) -> int:
        """Takes a member; returns where the next header is."""
        name = pax.get(b"path", header.name)
        size, kind, data = header.size, header.kind, at + BLOCK
        if b"size" in pax:
            size = int(pax[b"size"])
        if kind == "S":
            data += self._sparse_headers(block, at)
        elif any(key.startswith(b"GNU.sparse.") for key in pax):
            kind = "S"
        elif kind in _WITHOUT_DATA:
            if size and kind not in "15":  # some writers note a size that no data follows
                raise _Damaged("bad-header", at, f"a {_KINDS[kind]} that claims data at byte {at}")
            size = 0
        if data + size > self._stop:
            raise _Damaged(
                "truncated",
                at,
                self._cut(
                    f'member "{_text(name)}" at byte {at} needs {size:,} bytes, of which '
                    f"{max(0, self._stop - data):,} are there"
                ),
            )
        self._last = name
        if kind in "07" and not name.endswith(b"/"):
            self._names.append(name.decode("utf-8", "surrogateescape"))
            self._offsets.append(data)
            self._sizes.append(size)
        else:
            what = "folder" if kind in "07" else _KINDS.get(kind, f"unknown type {kind}")
            self._others.append(OtherMember(name.decode("utf-8", "surrogateescape"), what, at))
        return data + _padded(size)

    def _sparse_headers(self, block: bytes, at: int) -> int:
        length, more = 0, block[482]
        while more:
            length += BLOCK
            extended = self._reader.read_at(at + length, BLOCK)
            if len(extended) < BLOCK or at + length + BLOCK > self._stop:
                raise _Damaged(
                    "truncated", at, self._cut(f"the archive ends in a sparse member at byte {at}")
                )
            more = extended[504]
        return length

    def _require_end(self, at: int) -> None:
        """Raises unless nothing but zeros follows."""
        place = at
        while place < self._stop:
            chunk = self._reader.read_at(place, min(_CHUNK, self._stop - place))
            if rest := chunk.lstrip(b"\0"):
                place += len(chunk) - len(rest)
                self._judge_what_follows(at, place - (place - at) % BLOCK)
            place += len(chunk)
            if not chunk or place - at > _ZEROS_AT_THE_END:
                break
        if at == self._start or place < self._stop:
            raise _Damaged("hole", at, f"it is filled with zeros from byte {at} to its end")
        if self._declared > self._stop:
            raise _Damaged("truncated", at, self._cut(f"the file ends at byte {self._stop}"))

    def _judge_what_follows(self, at: int, place: int) -> None:
        """Raises a hole where a header comes soon, trailing data elsewhere."""
        window = self._reader.read_at(place, min(_HOLE_SEARCH, self._stop - place))
        for start in range(0, len(window), BLOCK):
            try:
                parse_header(window[start : start + BLOCK])
            except ValueError:
                continue
            raise _Damaged(
                "hole",
                at,
                f"a zero-filled hole at byte {at}; the archive goes on at byte {place + start}",
            )
        raise _Damaged(
            "trailing-data",
            at,
            f"the archive ends at byte {at}, but data follows at byte {place}",
        )


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
