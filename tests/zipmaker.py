"""Builds zips for the tests, with Python's zipfile."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

from tests.tarmaker import Members


class _Pipe(io.RawIOBase):
    """A file that cannot go back, so that the CRC has to follow the data."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.data += bytes(data)  # type: ignore[call-overload]
        return len(bytes(data))  # type: ignore[call-overload]


def zipped(
    members: Members,
    *,
    deflate: bool = False,
    streamed: bool = False,
    zip64: bool = False,
    comment: bytes = b"",
    folders: Iterable[str] = (),
    method: int | None = None,
) -> bytes:
    """Returns a zip.

    Args:
        members: name and content of each.
        deflate: whether they are compressed.
        streamed: whether the CRCs follow the data.
        zip64: whether each member has 64-bit sizes.
        comment: at the end.
        folders: names of folders that have entries of their own.
        method: another method of compression.
    """
    kind = method or (zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED)
    target = _Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(target, "w", kind) as archive:
        archive.comment = comment
        for folder in folders:
            archive.writestr(folder, b"")
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = kind
            info.external_attr = 0o100644 << 16
            with archive.open(info, "w", force_zip64=zip64) as file:
                file.write(data)
    return target.data if isinstance(target, _Pipe) else target.getvalue()
