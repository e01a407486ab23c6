"""Staged files: what one pass over a stream leaves, with a note in front of each image.

The note says where in the source the image came from, so that messages can name that place, and
holds a CRC, since a staged file is read long after it was written.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

from converter.errors import SourceChangedError, SourceReadError, printable
from converter.osal import RandomReader
from converter.sources.base import STAGED, SourceFile

_NOTE: Final = struct.Struct("<IIQ")
NOTE_BYTES: Final = _NOTE.size
"""Length of the note: CRC32C and length of the image, and its offset in the source."""


def note(data: bytes, offset: int) -> bytes:
    """Returns what is put in front of an image.

    Args:
        data: the image.
        offset: where its bytes begin in the source.
    """
    return _NOTE.pack(google_crc32c.value(data), len(data), offset)


def staged_file(path: str, source: str) -> SourceFile:
    """Describes a staged file as it is now.

    Args:
        path: absolute path.
        source: where its images come from, for messages.

    Raises:
        OSError: the file is gone.
    """
    now = SourceFile.of(path, STAGED)
    return SourceFile(now.path, now.size, now.mtime_ns, STAGED, source)


def read_staged(reader: RandomReader, name: str, offset: int, size: int) -> bytes:
    """Returns an image.

    Args:
        reader: the staged file.
        name: the image's official name.
        offset: where it begins, behind its note.
        size: its length in bytes.

    Raises:
        SourceReadError: it cannot be read.
        SourceChangedError: it is not what was staged.
    """
    both = reader.read_at(offset - NOTE_BYTES, NOTE_BYTES + size)
    data = both[NOTE_BYTES:]
    if len(data) == size:
        crc, length, _ = _NOTE.unpack_from(both)
        if (crc, length) == (google_crc32c.value(data), size):
            return data
    raise SourceChangedError(
        f"{printable(reader.path)} at byte {offset}: {name} is not as it was staged. The disk may "
        "be failing; start anew with --restart"
    )


def origin_of(file: SourceFile, offset: int) -> tuple[str, int]:
    """Returns the source that a staged image came from, and where in it, in bytes."""
    try:
        with RandomReader(file.path) as reader:
            found = reader.read_at(offset - NOTE_BYTES, NOTE_BYTES)
        return file.spelling, int(_NOTE.unpack(found)[2])
    except (struct.error, SourceReadError):
        return file.path, offset
