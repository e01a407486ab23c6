"""Proves archives by their official sha256, beside everything else: `--validate digest`.

A match says that every byte is the official one, which is more than a decoder can say, at about a
tenth of its cost. What cannot be proved is decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from converter.checksum import Checksum
from converter.errors import printable
from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS, OfficialArchive
from converter.osal import RandomReader
from converter.progress import Progress
from converter.sources.base import TAR, Recognised

DIGEST: Final = "digest"
_FALLBACK: Final = "decode"
_TRUSTED: Final = "off"


@dataclass
class Proof:
    """What is known of the archives so far.

    Attributes:
        levels: how the images of each split are to be validated: header, decode or off.
        checksums: the archives that turned out to be official.
    """

    levels: dict[str, str]
    checksums: tuple[Checksum, ...] = ()
    _pending: list[tuple[str, str, OfficialArchive, Future[str]]] = field(default_factory=list)

    def settle(self, progress: Progress) -> bool:
        """Waits for the digests; returns whether all are the official ones.

        Where one is not, the level of its split becomes `decode`.

        Raises:
            SourceReadError: an archive cannot be read.
        """
        if not self._pending:
            return True
        refuted = []
        with progress.step("Digest", len(self._pending), "archives") as step:
            for path, split, official, digest in self._pending:
                if (sha256 := digest.result()) == official.sha256:
                    self.checksums += (Checksum(path, sha256, official.name),)
                else:
                    refuted.append((path, split, official))
                step.advance(1)
        self._pending = []
        for path, split, official in refuted:
            self.levels[split] = _FALLBACK
            progress.say(
                f"{printable(path)} is not the official {official.name}, byte for byte: every "
                f"image of the {split} split is decoded instead"
            )
        return not refuted


@contextlib.contextmanager
def begin_proof(
    sources: Sequence[Recognised],
    validate: str,
    progress: Progress,
    known: Sequence[Checksum] = (),
) -> Iterator[Proof]:
    """Begins to read the archives that may be official; what is unread at the end is left.

    A split is left undecoded only where all that may hold images of it may be official archives.

    Args:
        sources: what was found.
        validate: digest, decode, header or off; only for digest is anything read.
        progress: is told which splits are decoded because no official digest can be theirs.
        known: digests that need not be computed.
    """
    if validate != DIGEST:
        yield Proof(dict.fromkeys(SPLITS, validate))
        return
    settled = {checksum.path: checksum for checksum in known}
    proven = [source for source in sources if _is_official(source, settled)]
    candidates = [
        (source, None if source.part.path in settled else _candidate(source))
        for source in sources
        if source not in proven
    ]
    proof = Proof(dict.fromkeys(SPLITS, _TRUSTED))
    for source, official in candidates:
        if official is None:
            why = "has not the size of an official archive"
            if source.part.path in settled:
                why = "is not an official archive byte for byte"
            proof.levels.update(dict.fromkeys(source.splits, _FALLBACK))
            progress.say(
                f"{printable(source.part.path)} {why}: every "
                f"image of the {', '.join(source.splits)} split is decoded instead"
            )
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=max(1, len(sources))) as threads:
        for source, official in candidates:
            if official is not None and proof.levels[official.split] == _TRUSTED:
                path = source.part.path
                pending = threads.submit(_sha256, path, stop)
                proof._pending.append((path, official.split, official, pending))
        try:
            yield proof
        finally:
            stop.set()


def _is_official(source: Recognised, settled: Mapping[str, Checksum]) -> bool:
    checksum = settled.get(source.part.path)
    return checksum is not None and any(
        official.name == checksum.official and (official.split,) == source.splits
        for official in OFFICIAL_ARCHIVES
    )


def _candidate(source: Recognised) -> OfficialArchive | None:
    if source.part.kind != TAR or not source.certain or len(source.splits) != 1:
        return None
    size = Path(source.part.path).stat().st_size
    for official in OFFICIAL_ARCHIVES:
        if official.split in source.splits and official.sha256 and official.size in (size, None):
            return official
    return None


def _sha256(path: str, stop: threading.Event) -> str:
    """Returns the digest; hashing and reading leave the interpreter to the other threads."""
    digest = hashlib.sha256()
    with RandomReader(path) as reader:
        for piece in reader.pieces():
            if stop.is_set():
                break
            digest.update(piece)
    return digest.hexdigest()
