"""Headers of a zip: its directory at the end, and the local header in front of each member.

After PKWARE's APPNOTE 6.3. Python's zipfile keeps some 700 bytes for each entry, two million of
them in Kaggle's zip, so the directory is walked here. Whatever does not fit together is refused.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from converter.errors import printable
from converter.osal import RandomReader

STORED: Final = 0
DEFLATED: Final = 8
METHODS: Final = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "xz",
    98: "PPMd",
    99: "AES encryption",
}

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64: Final = struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT: Final = 0xFFFF
_ELSEWHERE: Final = 0xFFFFFFFF
"""Stands where a number has its place in the zip64 field."""
_ZIP_64: Final = 1
_ENCRYPTED: Final = 1
_DESCRIPTOR: Final = 8
"""Flag: the CRC follows the data, where the writer could not go back to the header."""
_UTF_8: Final = 0x800
_UNIX: Final = 3
_CHUNK: Final = 1 << 20


class ZipDamage(Exception):
    """A zip that cannot be trusted or read.

    Args:
        kind: as in `sources.base.Damage`.
        offset: where in the file, in bytes.
        what: the reason.
    """

    def __init__(self, kind: str, offset: int, what: str) -> None:
        super().__init__(kind, offset, what)
        self.kind, self.offset, self.what = kind, offset, what


class Directory(NamedTuple):
    """Where the directory lies, and how many entries it claims; that may be modulo 65536."""

    start: int
    end: int
    entries: int
    is_zip64: bool


class Entry(NamedTuple):
    """What the directory says of a member."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header: int
    mode: int
    at: int

    @property
    def name(self) -> str:
        """The name, with slashes."""
        encoding = "utf-8" if self.flags & _UTF_8 else "cp437"
        return self.raw_name.decode(encoding, "surrogateescape").replace("\\", "/")

    @property
    def kind(self) -> str:
        """What it is: a file, a folder, a symlink or something special."""
        if self.raw_name.endswith((b"/", b"\\")):
            return "folder"
        if stat.S_ISLNK(self.mode):
            return "symlink"
        return "special" if self.mode and stat.S_IFMT(self.mode) not in (0, stat.S_IFREG) else ""


class Local(NamedTuple):
    """What a member's local header says."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    data: int

    @property
    def crc_follows(self) -> bool:
        """Whether the CRC stands behind the data."""
        return bool(self.flags & _DESCRIPTOR)


def find_directory(reader: RandomReader) -> Directory:
    """Finds the directory of a zip.

    Raises:
        ZipDamage: it is missing, not where it says it is, or in another file.
        SourceReadError: the system could not read the file.
    """
    start = max(0, reader.size - _END.size - _LONGEST_COMMENT)
    tail = reader.read_at(start, reader.size - start)
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        if len(tail) - at >= _END.size:
            end = _END.unpack_from(tail, at)
            if at + _END.size + end[7] == len(tail):
                break
        at = tail.rfind(b"PK\5\6", 0, at)
    if at < 0:
        raise ZipDamage(
            "truncated",
            reader.size,
            f"the directory at its end is missing: the file is cut at byte {reader.size}, or "
            "something was added to it",
        )
    _, disk, first_disk, _, entries, length, offset, _ = end
    disks, is_zip64, end_at = max(disk, first_disk) + 1, False, start + at
    located = reader.read_at(max(0, end_at - _LOCATOR_64.size), _LOCATOR_64.size)
    if located.startswith(b"PK\6\7"):
        _, _, end_at, disks = _LOCATOR_64.unpack(located)
        record = reader.read_at(end_at, _END_64.size)
        if len(record) < _END_64.size or not record.startswith(b"PK\6\6"):
            raise ZipDamage("bad-header", end_at, f"no zip64 directory end at byte {end_at}")
        entries, length, offset = _END_64.unpack(record)[7:]
        is_zip64 = True
    if disks > 1:
        raise ZipDamage("unsupported", start + at, "it is one of several volumes (.z01, .z02, ...)")
    if offset + length != end_at:
        raise ZipDamage(
            "bad-header",
            end_at,
            f"its directory should end at byte {offset + length:,} and ends at byte {end_at:,}: "
            "bytes are missing, or were put in front",
        )
    return Directory(offset, end_at, entries, is_zip64)


def entries(reader: RandomReader, start: int, end: int) -> Iterator[Entry]:
    """Yields the entries of the directory, or of a range of it.

    Args:
        reader: the file.
        start: first byte of the range, where an entry begins.
        end: byte after the last entry.

    Raises:
        ZipDamage: an entry is damaged.
        SourceReadError: the system could not read the file.
    """
    at, chunk, chunk_at = start, b"", start
    while at < end:
        place = at - chunk_at
        if len(chunk) - place < _ENTRY.size + 3 * 0xFFFF and chunk_at + len(chunk) < end:
            chunk, chunk_at, place = reader.read_at(at, min(_CHUNK, end - at)), at, 0
        if len(chunk) - place < _ENTRY.size or chunk[place : place + 4] != b"PK\1\2":
            raise ZipDamage("bad-header", at, f"a damaged entry of the directory at byte {at}")
        field = _ENTRY.unpack_from(chunk, place)
        named = place + _ENTRY.size
        extra, comment = named + field[10], named + field[10] + field[11]
        length = comment + field[12] - place
        if at + length > end or comment + field[12] > len(chunk):
            raise ZipDamage("bad-header", at, f"a damaged entry of the directory at byte {at}")
        packed, size, header = _zip64(chunk[extra:comment], at, field[8], field[9], field[16])
        mode = field[15] >> 16 if field[1] >> 8 == _UNIX else 0
        name = chunk[named:extra]
        yield Entry(name, field[3], field[4], field[7], packed, size, header, mode, at)
        at += length


def _zip64(extra: bytes, at: int, packed: int, size: int, header: int) -> tuple[int, int, int]:
    """Returns the numbers, those too large for 32 bits from the zip64 field."""
    if _ELSEWHERE not in (packed, size, header):
        return packed, size, header
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == _ZIP_64:
            wide = iter(
                struct.unpack_from(f"<{length // 8}Q", extra[: place + 4 + length], place + 4)
            )
            try:
                size = next(wide) if size == _ELSEWHERE else size
                packed = next(wide) if packed == _ELSEWHERE else packed
                header = next(wide) if header == _ELSEWHERE else header
            except StopIteration:
                break
            return packed, size, header
        place += 4 + length
    raise ZipDamage("bad-header", at, f"an entry of the directory without its size at byte {at}")


def read_local(reader: RandomReader, at: int) -> Local:
    """Reads a member's local header.

    Raises:
        ZipDamage: there is none.
        SourceReadError: the system could not read the file.
    """
    block = reader.read_at(at, _LOCAL.size + 256)
    if len(block) < _LOCAL.size or not block.startswith(b"PK\3\4"):
        raise ZipDamage("bad-header", at, f"no header of a member at byte {at}")
    _, _, flags, method, _, _, crc, packed, size, named, extra = _LOCAL.unpack_from(block)
    name = block[_LOCAL.size : _LOCAL.size + named]
    if len(name) < named:
        name = reader.read_at(at + _LOCAL.size, named)
    return Local(name, flags, method, crc, packed, size, at + _LOCAL.size + named + extra)


def checked(reader: RandomReader, entry: Entry, limit: int) -> Local:
    """Compares a member's local header with its entry in the directory.

    Args:
        reader: the file.
        entry: what the directory says.
        limit: byte that the data must not reach, where the directory begins.

    Returns:
        The local header.

    Raises:
        ZipDamage: they differ, or the member cannot be read.
        SourceReadError: the system could not read the file.
    """
    at = entry.header
    if entry.flags & _ENCRYPTED:
        raise _refused("unsupported", entry, "is encrypted")
    if entry.method not in (STORED, DEFLATED):
        method = METHODS.get(entry.method, f"method {entry.method}")
        raise _refused("unsupported", entry, f"is compressed with {method}")
    local = read_local(reader, at)
    noted = [
        (local.raw_name, entry.raw_name),
        (local.method, entry.method),
        (local.flags & _ENCRYPTED, 0),
    ]
    if local.crc_follows:
        noted.append((entry.crc in descriptor_crcs(reader, local.data + entry.packed), True))
    else:
        noted.append((local.crc, entry.crc))
        noted += [
            pair
            for pair in ((local.packed, entry.packed), (local.size, entry.size))
            if pair[0] != _ELSEWHERE
        ]
    if entry.method == STORED:
        noted.append((entry.packed, entry.size))
    if any(found != expected for found, expected in noted):
        raise _refused("bad-header", entry, "has a header that contradicts the directory")
    if local.data + entry.packed > limit:
        raise _refused("truncated", entry, "runs into the directory")
    return local


def _refused(kind: str, entry: Entry, what: str) -> ZipDamage:
    name, at = printable(entry.name), entry.header
    return ZipDamage(kind, at, f'member "{name}" at byte {at} {what}')


def descriptor_crcs(reader: RandomReader, at: int) -> tuple[int, ...]:
    """Returns what may be the CRC behind a member's data: a signature in front is optional."""
    block = reader.read_at(at, 8)
    if len(block) < 8:
        return ()
    first, second = struct.unpack("<2L", block)
    return (first, second) if block.startswith(b"PK\7\10") else (first,)
