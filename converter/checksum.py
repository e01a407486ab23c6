"""Compares the archives with the official digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from converter import pool
from converter.errors import printable
from converter.imagenet import OFFICIAL_ARCHIVES
from converter.osal import RandomReader
from converter.progress import Progress


@dataclass(frozen=True)
class Checksum:
    """The digest of an archive.

    Attributes:
        path: the archive.
        sha256: its digest.
        official: the name of the official archive that it equals, None where it equals none.
    """

    path: str
    sha256: str
    official: str | None

    def __str__(self) -> str:
        if self.official:
            return f"{printable(self.path)}: the official {self.official}, byte for byte"
        return (
            f"{printable(self.path)}: its sha256 {self.sha256} is not that of an official archive. "
            "Correct repacks of the same images differ too, so this alone proves nothing wrong."
        )


def official_archive(sha256: str, md5: str) -> str | None:
    """Returns the name of the official archive with these digests, None where there is none."""
    for official in OFFICIAL_ARCHIVES:
        if sha256 == official.sha256 or (official.sha256 is None and md5 == official.md5):
            return official.name
    return None


def check_archives(
    archives: Sequence[str], workers: int, progress: Progress
) -> tuple[Checksum, ...]:
    """Reads each archive once and compares it with the official digests.

    Args:
        archives: their paths.
        workers: how many are read at once.
        progress: shows how far it is.

    Raises:
        SourceReadError: an archive cannot be read.
    """
    found = []
    with progress.step("Checksum", len(archives), "archives") as step:
        for path, sha256, md5 in pool.run(_digest, archives, workers):
            found.append(Checksum(path, sha256, official_archive(sha256, md5)))
            step.advance(1, Path(path).stat().st_size)
    return tuple(sorted(found, key=lambda checksum: archives.index(checksum.path)))


def _digest(path: str) -> tuple[str, str, str]:
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with RandomReader(path) as reader:
        for data in reader.pieces():
            sha256.update(data)
            md5.update(data)
    return path, sha256.hexdigest(), md5.hexdigest()
