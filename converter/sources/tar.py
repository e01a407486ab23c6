"""A strict tar reader: lists what an archive holds, and never takes damage for its end.

Python's tarfile stops in silence at a damaged header or a zero-filled hole. Here every header's
checksum is verified, and the end of an archive is believed only where nothing follows it. Formats:
v7, ustar (POSIX.1-1988), pax (POSIX.1-2001), GNU (its manual's "Basic Tar Format"). Where Python
and GNU tar disagree on an archive, the stricter one is followed.

What a tar cannot tell: a checksum is a sum, so two bytes of one header that change places go
unnoticed, and so do whole blocks that form another honest archive (a member cut out with its
header, two equally long ones with their headers swapped). No checksum guards a long name or a
pax header. Names and counts are the index's to judge, the bytes of an image the decoder's. The
padding behind a member is not looked at, since old writers leave there what their buffer held,
but it has to be there.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from array import array
from collections.abc import Callable
from typing import Final, NoReturn

import numpy as np

from converter.errors import printable
from converter.sources.base import ENDLESS, Damage, Listing, MemberReader, OtherMember
from converter.sources.tar_header import BLOCK, Header, parse_header, parse_pax

_LONGEST_EXTENSION: Final = 1 << 20
"""Bytes of a long name or a pax header; honest ones have some hundred."""
_ZEROS_AT_THE_END: Final = 64 << 20
"""Padding after the end of an archive; honest ones have 10 kB, rarely some MB."""
_END_MARKER: Final = 2 * BLOCK
_HOLE_SEARCH: Final = 1 << 20
"""How far behind a hole the next member is looked for, to say what it is."""
_CHUNK: Final = 1 << 20
_LONGEST_SHOWN: Final = 200
_KINDS: Final = {
    "1": "hardlink",
    "2": "symlink",
    "3": "device",
    "4": "device",
    "5": "folder",
    "6": "fifo",
    "D": "folder",
    "S": "sparse",
    "V": "volume label",
}
_WITHOUT_DATA: Final = "123456V"
_SPARSE: Final = "GNU.sparse."
_PLAIN_NUMBERS: Final = re.compile(
    rb"(?:[0-7]{7}\0|[0-7]{6} \0){3}([0-7]{11})[\0 ][0-7]{11}[\0 ]([0-7]{6})\0 "
)
"""Mode, owner, group, size, time and checksum as nearly every writer spells them."""


def list_members(
    reader: MemberReader,
    start: int = 0,
    end: int | None = None,
    *,
    limit: int | None = None,
    passing: Callable[[str, int, int], None] | None = None,
) -> Listing:
    """Lists the members of an archive, or of one that lies inside another.

    Args:
        reader: the file, or a stream that is read forward only.
        start: first byte of the archive.
        end: byte after it, None for the end of the file. Lying beyond that is a truncation.
        limit: stop after so many regular files, without judging the rest.
        passing: is called with the name, offset and size of each regular file when its header
            has been read and nothing behind that, so that a stream's bytes can be taken as they
            pass. Whether they are all there is judged afterwards: a cut member is passed, too.

    Raises:
        SourceReadError: the system could not read the file.
    """
    return _Walk(reader, start, end, passing).run(limit)


class _Damaged(Exception):
    def __init__(self, kind: str, offset: int, what: str) -> None:
        super().__init__(kind, offset, what)
        self.kind, self.offset, self.what = kind, offset, what


def _read_header(block: bytes) -> Header:
    """Returns what a header says.

    Raises:
        ValueError: it is none, or a damaged one.
    """
    plain = _PLAIN_NUMBERS.match(block, 100)
    if plain and block.isascii() and not block[345]:
        # The low half of an Adler-32 is 1 plus the sum of the bytes modulo 65521, a modulus that
        # 512 bytes of ASCII cannot reach; that is twenty times faster than sum().
        total = (zlib.adler32(block) & 0xFFFF) - 1 - sum(block[148:156]) + 8 * ord(" ")
        if total == int(plain[2], 8):
            kind = chr(block[156]) if block[156] else "0"
            return Header(block[:100].split(b"\0", 1)[0], int(plain[1], 8), kind)
    header = parse_header(block)
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ValueError(f"a damaged header ({error})") from None
    return header


class _Walk:
    def __init__(
        self,
        reader: MemberReader,
        start: int,
        end: int | None,
        passing: Callable[[str, int, int], None] | None,
    ) -> None:
        self._reader = reader
        self._start = start
        self._end = end
        self._passing = passing
        self._names: list[str] = []
        self._offsets = array("q")
        self._sizes = array("q")
        self._others: list[OtherMember] = []
        self._last: str | None = None
        self._common: dict[str, str] = {}
        """What global pax headers say of every member: `path`, `size` and a sign of sparseness."""
        self._own: dict[str, str] = {}
        """What long names and pax headers say of the next member."""
        self._expecting = False

    @property
    def _declared(self) -> int:
        """Where the archive should end."""
        return self._reader.size if self._end is None else self._end

    @property
    def _stop(self) -> int:
        """Where the bytes end; a stream tells it when it has ended."""
        return min(self._declared, self._reader.size)

    def run(self, limit: int | None) -> Listing:
        damage, marker = None, False
        try:
            marker = self._walk(limit)
        except _Damaged as found:
            damage = self._explain(found)
        return Listing(
            self._names,
            np.array(self._offsets, np.int64),
            np.array(self._sizes, np.int64),
            self._others,
            damage,
            marker,
        )

    def _explain(self, found: _Damaged) -> Damage:
        whole = self._declared - self._start
        share = 100 * (found.offset - self._start) / whole if whole > 0 else 0.0
        last = "there is no good member"
        if self._last is not None:
            last = f'the last good member is "{_shown(self._last)}"'
        message = f"{found.what}; {last}"
        if whole < ENDLESS:
            message += f"; {share:.1f} % of the archive was readable"
        return Damage(found.kind, found.offset, printable(message))

    def _walk(self, limit: int | None) -> bool:
        """Lists everything; returns whether an end marker was there."""
        at, read_at = self._start, self._reader.read_at
        while at < (stop := self._stop):
            block = read_at(at, min(BLOCK, stop - at))
            if len(block) < BLOCK:
                if at >= self._stop:  # a stream shows its end only when one reads there
                    break
                self._short_block(at, len(block))
            if not block[0] and not any(block):
                if self._expecting:
                    raise _Damaged("bad-header", at, f"zeros instead of a member at byte {at}")
                return self._length_of_end(at) >= _END_MARKER
            header = self._parse(block, at)
            if header.kind in "LKxXg":
                at = self._extension(header, at)
                continue
            at = self._member(header, block, at)
            if limit is not None and len(self._names) >= limit:
                return False
        self._judge_end(at)
        return False

    def _judge_end(self, at: int) -> None:
        """Raises unless an archive without an end marker may end here."""
        stop = self._stop
        if at == self._start:
            self._truncated("empty", at, "the archive is empty")
        if self._expecting:
            self._truncated("truncated", stop, f"the archive ends at byte {stop}, before a member")
        if at > stop or self._declared > stop:
            self._truncated("truncated", stop, f"the archive ends at byte {stop}, inside a block")

    def _truncated(self, kind: str, at: int, what: str) -> NoReturn:
        """Raises that something is cut, and whether the range or the file is to blame."""
        missing = self._declared - self._stop
        beyond = f" ({missing:,} bytes of it lie beyond the end of the file)" if missing > 0 else ""
        raise _Damaged(kind, at, what + beyond)

    def _short_block(self, at: int, length: int) -> NoReturn:
        if at == self._start and self._declared == self._stop:
            raise _Damaged("not-tar", at, f"this is no tar: it has {length} bytes")
        self._truncated("truncated", at, f"the archive ends at byte {at + length}, inside a header")

    def _parse(self, block: bytes, at: int) -> Header:
        try:
            header = _read_header(block)
        except ValueError as error:
            if at == self._start:
                raise _Damaged("not-tar", at, f"this is no tar: {error} at byte {at}") from None
            raise _Damaged("bad-header", at, f"{error} at byte {at}") from None
        if header.kind == "M":
            raise _Damaged(
                "unsupported", at, f"a member continued from another volume at byte {at}"
            )
        return header

    def _extension(self, header: Header, at: int) -> int:
        """Notes a long name or a pax header; returns where the next header is."""
        data = at + BLOCK
        if header.size > _LONGEST_EXTENSION:
            raise _Damaged(
                "bad-header", at, f"an extended header of {header.size:,} bytes at byte {at}"
            )
        fits = data + _padded(header.size) <= self._stop
        payload = self._reader.read_at(data, header.size) if fits else b""
        if not fits or len(payload) < header.size:
            self._truncated("truncated", at, f"an extended header is cut at byte {at}")
        try:
            if header.kind == "L":
                self._own["path"] = _long_name(payload)
            elif header.kind != "K":
                said = self._common if header.kind == "g" else self._own
                said.update(_wanted(parse_pax(payload)))
        except ValueError as error:
            raise _Damaged("bad-header", at, f"{error} at byte {at}") from None
        self._expecting |= header.kind != "g"
        return data + _padded(header.size)

    def _member(self, header: Header, block: bytes, at: int) -> int:
        """Takes a member; returns where the next header is."""
        kind, size, name, data = header.kind, header.size, "", at + BLOCK
        if self._own or self._common:
            said = {**self._common, **self._own}
            name = said.get("path", "")
            size = int(said.get("size", size))
            if _SPARSE in said:
                kind = "S"
        name = name or _text(header.name)
        self._own, self._expecting = {}, False
        if header.kind == "S":
            data += self._sparse_headers(block, at)
        elif kind in _WITHOUT_DATA:
            if size and kind not in "15":  # some writers note a size that no data follows
                raise _Damaged("bad-header", at, f"a {_KINDS[kind]} that claims data at byte {at}")
            size = 0
        self._require(name, at, data, size)
        if kind in "07" and not name.endswith("/"):
            if self._passing is not None:
                self._passing(name, data, size)
                self._reader.skip_to(data + size)
                self._require(name, at, data, size)
            self._names.append(name)
            self._offsets.append(data)
            self._sizes.append(size)
        else:
            unknown = f"unknown type {printable(kind)}"
            what = "folder" if kind in "07" else _KINDS.get(kind, unknown)
            self._others.append(OtherMember(name, what, at))
        self._last = name
        return data + _padded(size)

    def _require(self, name: str, at: int, data: int, size: int) -> None:
        """Raises that the archive ends inside a member's bytes."""
        if data + size > self._stop:
            there = max(0, self._stop - data)
            what = f'member "{_shown(name)}" at byte {at} needs {size:,} bytes, of which {there:,}'
            self._truncated("truncated", at, f"{what} are there")

    def _sparse_headers(self, block: bytes, at: int) -> int:
        length, more = 0, block[482]
        while more:
            length += BLOCK
            extended = self._reader.read_at(at + length, BLOCK)
            if len(extended) < BLOCK or at + length + BLOCK > self._stop:
                self._truncated("truncated", at, f"a sparse member is cut at byte {at}")
            more = extended[504]
        return length

    def _length_of_end(self, at: int) -> int:
        """Returns how many zeros the archive ends with; raises unless nothing else follows."""
        place = at
        while place < self._stop:
            chunk = self._reader.read_at(place, min(_CHUNK, self._stop - place))
            if rest := chunk.lstrip(b"\0"):
                self._judge_what_follows(at, place + len(chunk) - len(rest))
            place += len(chunk)
            if not chunk or place - at > _ZEROS_AT_THE_END:
                break
        if at == self._start or place - at > _ZEROS_AT_THE_END:
            raise _Damaged("hole", at, f"it is zero-filled from byte {at} to byte {place}")
        if place < self._declared:
            self._truncated("truncated", place, f"the archive ends at byte {place}")
        return place - at

    def _judge_what_follows(self, at: int, found: int) -> NoReturn:
        """Raises a hole where a header comes soon, trailing data elsewhere."""
        place = found - (found - at) % BLOCK
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
            "trailing-data", at, f"the archive ends at byte {at}, but data follows at byte {found}"
        )


def _long_name(payload: bytes) -> str:
    name = payload.split(b"\0", 1)[0]
    if not name:
        raise ValueError("a long name that is empty")
    return _text(name)


def _wanted(records: dict[bytes, bytes]) -> dict[str, str]:
    """Returns what matters of a pax header: no more is kept, however much it holds."""
    wanted = {key.decode(): _text(records[key]) for key in (b"path", b"size") if key in records}
    if any(key.startswith(_SPARSE.encode()) for key in records):
        wanted[_SPARSE] = ""
        if name := records.get(b"GNU.sparse.name"):
            wanted["path"] = _text(name)
    return wanted


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _shown(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
