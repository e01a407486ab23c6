"""The zip layout: read in place through its directory, members stored or deflated, zip64.

An image is found again by its local header, which holds its CRC or says that it follows the data:
so every image's CRC is compared when it is read. Tars that are stored in a zip are read as ranges
of it, without that CRC.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from posixpath import basename
from typing import Final

import numpy as np

from converter.errors import DamagedImageError, printable
from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS, parse_wnid
from converter.osal import RandomReader
from converter.sources.base import (
    TAR,
    ZIP,
    Damage,
    Listing,
    OpenPart,
    OtherMember,
    Part,
    Recognised,
    SourceFile,
)
from converter.sources.identify import with_state
from converter.sources.names import KAGGLE_FOLDER, is_class_tar, is_patch, splits_named
from converter.sources.zip_directory import (
    DEFLATED,
    STORED,
    Directory,
    Local,
    ZipDamage,
    checked,
    descriptor_crcs,
    entries,
    find_directory,
    read_local,
)

_MAGIC: Final = (b"PK\3\4", b"PK\5\6")
_COMPRESSED_TARS: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z")
_ENTRIES_PER_PART: Final = 20_000
_CHUNK: Final = 64 << 10


def recognise(path: Path) -> Recognised | str | None:
    """Says whether a file is a zip, and whether ImageNet's names are in its directory.

    Returns:
        What it was taken for, why it was not, or None where it is no zip.

    Raises:
        SourceReadError: the file cannot be read.
    """
    with RandomReader(path) as reader:
        if reader.read_at(0, 4) not in _MAGIC:
            return None
        names = _Names()
        try:
            directory = find_directory(reader)
            for entry in entries(reader, directory.start, directory.end):
                names.add(entry.name)
        except ZipDamage as damage:
            why = f"it is a zip file that cannot be used: {damage.what}"
            return with_state(path, reader.size, why)
        if not names.splits:
            return with_state(path, reader.size, names.why_not())
    splits = tuple(split for split in SPLITS if split in names.splits)
    patch = splits == ("test",) and is_patch(path.name)
    part = Part(str(path), kind=ZIP, is_patch=patch)
    return Recognised(part, f"{names.layout} in a zip file", splits, certain=not names.tars)


class _Names:
    """What the names in a zip tell together."""

    def __init__(self) -> None:
        self.splits: set[str] = set()
        self.tars = False
        self._classes = self._kaggle = False
        self._first = self._packed = ""
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, name: str) -> None:
        folder, _, base = name.rpartition("/")
        alike = folder, base[:14] if base[:1] in "iI" else base[:9], base[-4:]
        if alike in self._seen:  # two million names are more than a few seconds otherwise
            return
        held = set(splits_named([base]))
        held |= {archive.split for archive in OFFICIAL_ARCHIVES if archive.name == base}
        self.splits |= held
        if held:
            self._seen.add(alike)
            self.tars |= base.lower().endswith(".tar")
            self._classes |= is_class_tar(base) or parse_wnid(basename(folder)) is not None
            self._kaggle |= name.split("/")[0] == KAGGLE_FOLDER
        self._first = self._first or name
        if base.lower().endswith(_COMPRESSED_TARS):
            self._packed = name

    @property
    def layout(self) -> str:
        """How it is laid out, for a person."""
        if self._kaggle:
            return "Kaggle's tree"
        return "tars" if self.tars else "class folders" if self._classes else "images"

    def why_not(self) -> str:
        """Says why it is no source."""
        if self._packed:
            packed = printable(self._packed)
            return f"it is a zip file that holds {packed}; unpack it first, and give what is in it"
        if not self._first:
            return "it is a zip file that holds nothing"
        return (
            f"it is a zip file whose members (such as {printable(self._first)}) are not those of "
            "ImageNet 2012"
        )


class OpenZip(OpenPart):
    """A zip, or a range of its directory, that is being listed."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._reader = RandomReader(part.path)
        self._file = SourceFile(part.path, self._reader.size, self._reader.mtime_ns, ZIP)

    def divided(self) -> Sequence[Part]:
        """Returns ranges of the directory, so that workers share it and none holds it all."""
        if self._part.end is not None:
            return ()
        try:
            return list(self._ranges(find_directory(self._reader)))
        except ZipDamage:
            return ()  # said when it is listed

    def _ranges(self, directory: Directory) -> Iterator[Part]:
        begin, count = directory.start, 0
        for count, entry in enumerate(entries(self._reader, directory.start, directory.end), 1):
            if count % _ENTRIES_PER_PART == 1 and count > 1:
                yield self._range(begin, entry.at)
                begin = entry.at
        if count:
            yield self._range(begin, directory.end)
        claimed = directory.entries if directory.is_zip64 else directory.entries + (count & ~0xFFFF)
        if count != claimed:
            what = f"its directory has {count:,} entries where it claims {claimed:,}"
            raise ZipDamage("bad-header", directory.end, what)

    def _range(self, start: int, end: int) -> Part:
        part = self._part
        return Part(part.path, start=start, end=end, kind=ZIP, is_patch=part.is_patch)

    def listing(self) -> Listing:
        names: list[str] = []
        offsets, sizes = array("q"), array("q")
        others: list[OtherMember] = []
        damage = None
        try:
            directory = find_directory(self._reader)
            start, end = self._part.start, self._part.end
            if end is None:
                start, end = directory.start, directory.end
                if not list(self._ranges(directory)):
                    raise ZipDamage("empty", 0, "the zip file holds nothing")
            for entry in entries(self._reader, start, end):
                checked(self._reader, entry, directory.start)
                if entry.kind:
                    others.append(OtherMember(entry.name, entry.kind, entry.header))
                    continue
                names.append(entry.name)
                offsets.append(entry.header)
                sizes.append(entry.size)
        except ZipDamage as found:
            damage = Damage(found.kind, found.offset, found.what)
        return Listing(names, np.array(offsets), np.array(sizes), others, damage)

    def head(self, name: str, offset: int, size: int) -> bytes:
        local = read_local(self._reader, offset)
        if local.method == STORED:
            return self._reader.read_at(local.data, min(size, 8))
        try:
            return zlib.decompressobj(-15).decompress(self._reader.read_at(local.data, 512), 8)
        except zlib.error:
            return b""

    def located(self, name: str, canonical: str, offset: int, size: int) -> tuple[SourceFile, int]:
        return self._file, offset

    def inside(self, name: str, offset: int, size: int) -> Part | str:
        local = read_local(self._reader, offset)
        if local.method != STORED:
            return "it is compressed in the zip file; unpack it first"
        return Part(self._part.path, name, local.data, local.data + size, TAR)

    def close(self) -> None:
        self._reader.close()


def read_member(reader: RandomReader, name: str, offset: int, size: int) -> bytes:
    """Returns the bytes of a member, whose CRC was compared.

    Args:
        reader: the zip.
        name: how messages call the member.
        offset: where its local header begins.
        size: its length in bytes, once inflated.

    Raises:
        DamagedImageError: they are not the bytes that were put into the zip.
        SourceReadError: the system could not read the file.
    """
    try:
        local = read_local(reader, offset)
        data, end = _unpacked(reader, local, size)
    except (ZipDamage, zlib.error) as error:
        what = error.what if isinstance(error, ZipDamage) else str(error)
        raise DamagedImageError(_damaged(reader, name, offset, what)) from error
    crcs = descriptor_crcs(reader, end) if local.crc_follows else (local.crc,)
    if len(data) != size:
        what = f"it has {len(data):,} bytes or more, where {size:,} belong"
        raise DamagedImageError(_damaged(reader, name, offset, what))
    if zlib.crc32(data) not in crcs:
        raise DamagedImageError(_damaged(reader, name, offset, "its CRC is wrong"))
    return data


def _damaged(reader: RandomReader, name: str, offset: int, what: str) -> str:
    return printable(
        f"{reader.path}!{name} at byte {offset} is damaged: {what}; copy or download the zip file "
        "again"
    )


def _unpacked(reader: RandomReader, local: Local, size: int) -> tuple[bytes, int]:
    """Returns a member's bytes, at most one more than its size, and where its data end."""
    if local.method == STORED:
        return reader.read_at(local.data, size), local.data + size
    if local.method != DEFLATED:
        raise ZipDamage("bad-header", local.data, "its method of compression is unknown")
    inflater, pieces, have, at = zlib.decompressobj(-15), [], 0, local.data
    step = size + _CHUNK
    while not inflater.eof and have <= size:
        packed = inflater.unconsumed_tail
        if not packed:
            packed = reader.read_at(at, step)
            at, step = at + len(packed), _CHUNK
        piece = inflater.decompress(packed, size + 1 - have)
        if not packed and not piece:
            break
        pieces.append(piece)
        have += len(piece)
    return b"".join(pieces), at - len(inflater.unused_data) - len(inflater.unconsumed_tail)
