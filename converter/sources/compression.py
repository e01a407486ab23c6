"""Unpacks gzip, bzip2, xz and zstd strictly, piece by piece.

Python's own file objects leave out in silence what follows bzip2 and xz data, and its zstd package
takes a cut file for its end. Here the end of the data is believed only where nothing but zeros
follows it, and checksums are those of the formats.
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from converter.errors import UsageError

LONGEST_MAGIC: Final = 6
_PIECE: Final = 256 << 10
_ERRORS: Final = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


class DamagedStreamError(Exception):
    """A stream cannot be trusted past a place; the message says where and why."""


class _Unpacker(Protocol):
    """What `bz2.BZ2Decompressor`, `lzma.LZMADecompressor` and `zstd.ZstdDecompressor` share."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """`zlib` with the interface of the others; it checks the CRC and the length."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max(0, max_length))


def _zstd() -> tuple[Callable[[], Any], type[Exception]]:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return module.ZstdDecompressor, module.ZstdError
    raise UsageError(
        "reading zstd needs Python 3.14 or the package backports.zstd: pip install backports.zstd, "
        "or unpack the archive first: zstd -dc ARCHIVE.tar.zst | imagenet-convert --train -"
    )


@dataclass(frozen=True)
class Compression:
    """A way of compressing.

    Attributes:
        name: as messages call it.
        magic: what its data begins with.
    """

    name: str
    magic: bytes

    def open(self) -> tuple[_Unpacker, tuple[type[Exception], ...]]:
        """Returns what unpacks one frame, and the errors that say that it is damaged.

        Raises:
            UsageError: a package is missing.
        """
        if self.name == "gzip":
            return _Gzip(), _ERRORS
        if self.name == "bzip2":
            return bz2.BZ2Decompressor(), _ERRORS
        if self.name == "xz":
            return lzma.LZMADecompressor(lzma.FORMAT_XZ), _ERRORS
        unpacker, error = _zstd()
        return unpacker(), (*_ERRORS, error)


COMPRESSIONS: Final = (
    Compression("gzip", b"\x1f\x8b"),
    Compression("bzip2", b"BZh"),
    Compression("xz", b"\xfd7zXZ\0"),
    Compression("zstd", b"\x28\xb5\x2f\xfd"),
)


def compression_of(head: bytes) -> Compression | None:
    """Returns how data that begins so is compressed, None where it is not."""
    return next((found for found in COMPRESSIONS if head.startswith(found.magic)), None)


def unpacked(pieces: Iterator[bytes], compression: Compression) -> Iterator[bytes]:
    """Yields what compressed data holds, in pieces of at most 256 kB.

    Several frames in a row are one stream, as the formats' own tools have it.

    Args:
        pieces: the compressed data.
        compression: how it is compressed.

    Raises:
        DamagedStreamError: it is damaged or cut, or other data follows it.
        UsageError: a package is missing.
    """
    frames = _Frames(pieces, compression)
    while frames.is_next():
        yield from frames.unpack()


class _Frames:
    def __init__(self, pieces: Iterator[bytes], compression: Compression) -> None:
        self._pieces = pieces
        self._compression = compression
        self._read = 0
        self._rest = b""
        self._first = True

    def unpack(self) -> Iterator[bytes]:
        """Yields what one frame holds."""
        name = self._compression.name
        unpacker, errors = self._compression.open()
        while not unpacker.eof:
            data = self._next() if unpacker.needs_input else b""
            ended = unpacker.needs_input and not data
            try:
                piece = unpacker.decompress(data, _PIECE)
            except errors as error:
                raise DamagedStreamError(
                    f"the {name} data is damaged at or before byte {self._read} of the file "
                    f"({error})"
                ) from None
            if piece:
                yield piece
            elif ended and not unpacker.eof:
                raise DamagedStreamError(f"the {name} data is cut: it ends at byte {self._read}")
        self._rest = unpacker.unused_data
        self._read -= len(self._rest)

    def _next(self) -> bytes:
        data, self._rest = self._rest or next(self._pieces, b""), b""
        self._read += len(data)
        return data

    def is_next(self) -> bool:
        """Returns whether another frame follows; padding with zeros is left out."""
        if self._first:
            self._first = False
            return True
        while not (rest := self._rest.lstrip(b"\0")):
            self._read += len(self._rest)
            self._rest = next(self._pieces, b"")
            if not self._rest:
                return False
        self._read += len(self._rest) - len(rest)
        while len(rest) < LONGEST_MAGIC and (more := next(self._pieces, b"")):
            rest += more
        if not rest.startswith(self._compression.magic):
            raise DamagedStreamError(
                f"other data follows the {self._compression.name} data at byte {self._read}"
            )
        self._rest = rest
        return True
