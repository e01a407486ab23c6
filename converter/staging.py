"""Staging: what of the sources is read once and laid aside, for how long, and in how much room."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from converter import osal
from converter.buckets import SUFFIX
from converter.checksum import Checksum
from converter.errors import StagedFilesGoneError, printable
from converter.output import nearest_existing, require_space
from converter.progress import Progress
from converter.scan import Scan
from converter.shards import ShardResult
from converter.sources.base import STAGED, Part, Recognised
from converter.sources.stream_layout import official_size
from converter.staged_source import StagedSource
from converter.work import ShardJob

LONGEST_STAGED_NAME: Final = os.path.join("0" * 16, f"validation-0000{SUFFIX}")
"""As long as the longest name of a file below the folder of a conversion's staged files."""
_SHARDS_UNDER_WAY: Final = 2
"""Shards per worker that may be finished before an earlier one is."""


@dataclass
class Staging:
    """The sources of a conversion that are read once.

    Attributes:
        folder: where everything is staged.
        sources: what is staged.
        restart: whether the pass belongs to a run with --restart.
    """

    folder: Path
    sources: tuple[StagedSource, ...] = ()
    restart: bool = False
    _needed: dict[str, set[str]] = field(default_factory=dict)
    """The shards that each staged file is still needed for."""
    _by_shard: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, sources: Sequence[Recognised], restart: bool = False) -> Staging:
        """Returns the staging of some sources, nothing done yet."""
        staged = [StagedSource(source, folder / folder_name(source)) for source in sources]
        return cls(folder, tuple(staged), restart)

    def bring_about(self, out: Path, progress: Progress) -> None:
        """Makes the passes that have not been made.

        Raises:
            NoSpaceError: there is less room than the sources need.
            SourceError: a source is damaged.
            OutputError: the staged files cannot be written.
            ResumeError: standard input is not what was staged.
        """
        for staged in self.sources:
            if self.restart and not staged.state().get("restart"):
                staged.discard()
        missing = [staged for staged in self.sources if not staged.is_complete]
        self._require_space(missing, out, progress)
        for staged in self.sources:
            if staged in missing:
                staged.stage(progress, self.restart)
            else:
                staged.refuse_other_input()
                progress.say(f"{printable(staged.path)} is staged already; it is not read again")
        for checksum in self.checksums:
            progress.say(str(checksum))

    def _require_space(
        self, missing: Sequence[StagedSource], out: Path, progress: Progress
    ) -> None:
        if not missing:
            return
        needed = sum(staged.bytes_to_stage for staged in missing)
        place = nearest_existing(self.folder)
        require_space(place, needed, "choose another --staging or --out")
        if not osal.same_device(place, out):
            require_space(out, needed)
        unknown = [staged for staged in missing if not staged.size]
        expected = official_size([s for u in unknown for s in u.source.splits if u.source.certain])
        if (free := shutil.disk_usage(place).free) < expected:
            progress.say(
                f"{printable(osal.mount_of(place))} has {free:,} bytes free; the official archive "
                f"is {expected:,} bytes long, and so are its staged files"
            )

    @property
    def checksums(self) -> tuple[Checksum, ...]:
        """The digests that the passes computed."""
        return tuple(staged.checksum for staged in self.sources)

    def scanned(self) -> list[tuple[Part, Scan]]:
        """Returns what the staged files hold."""
        return [staged.scanned() for staged in self.sources]

    def identity(self) -> list[Any]:
        """Returns what tells the sources from others."""
        return [staged.identity() for staged in self.sources]

    def tokens(self) -> list[str]:
        """Returns what tells the staged files from those of other passes."""
        return [staged.state()["token"] for staged in self.sources]

    def begin_shards(self, job: ShardJob, kept: Collection[str]) -> None:
        """Notes which shards need which staged files, and frees what none does.

        Args:
            job: the shards.
            kept: those that are done.

        Raises:
            StagedFilesGoneError: a file is not there that is needed.
        """
        staged = {n: f.path for n, f in enumerate(job.index.files) if f.kind == STAGED}
        self._needed = {path: set() for path in staged.values()}
        if not staged:
            return
        for name, (plan, shard) in job.places.items():
            rows = job.index.splits[plan.split][plan.rows(shard)]
            numbers = np.unique(rows["file"]).tolist()
            self._by_shard[name] = [staged[number] for number in numbers if number in staged]
            if name not in kept:
                for path in self._by_shard[name]:
                    self._needed[path].add(name)
        gone = [path for path, names in self._needed.items() if names and not os.path.exists(path)]
        if gone:
            raise StagedFilesGoneError(f"{len(gone):,} staged files are gone that shards need")
        for path, names in self._needed.items():
            if not names:
                _free(path)

    def release(self, result: ShardResult) -> None:
        """Frees the staged files that no shard needs any more, now that one is on the disk.

        A shard that was not written because of corrupt images needs them in another run.
        """
        if result.written:
            for path in self._by_shard.get(result.name, ()):
                self._needed[path].discard(result.name)
                if not self._needed[path]:
                    _free(path)

    def room_needed(self, job: ShardJob, names: Sequence[str], workers: int) -> int:
        """Returns how much more room than now is needed at most while shards are written.

        Args:
            job: the shards.
            names: those that are to be written, in order.
            workers: how many are written at once.
        """
        sizes = [job.file_size(name) for name in names]
        if not self._by_shard or not osal.same_device(self.folder, job.folder):
            return sum(sizes)
        under_way = _SHARDS_UNDER_WAY * workers
        last = {path: name for name in names for path in self._by_shard[name]}
        freed: dict[str, int] = dict.fromkeys(names, 0)
        for path, name in last.items():
            freed[name] += os.path.getsize(path)
        most = total = 0
        for place, name in enumerate(names):
            total += sizes[place]
            most = max(most, total + sum(sizes[place + 1 : place + under_way]))
            total -= freed[name]
        return most

    def discard(self) -> None:
        """Removes everything that was staged.

        Raises:
            OutputError: it cannot be removed.
        """
        for staged in self.sources:
            staged.discard()
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def folder_name(source: Recognised) -> str:
    """Returns the name of the folder that a source is staged in."""
    return hashlib.sha256(os.fsencode(source.part.path)).hexdigest()[:16]


def staging_folder(out: Path, chosen: Path) -> Path:
    """Returns where a conversion stages below a chosen folder.

    Args:
        out: the data_dir, which has a folder of its own there.
        chosen: what `--staging` says.
    """
    return chosen / f"imagenet-convert-{hashlib.sha256(os.fsencode(out)).hexdigest()[:16]}"


def _free(path: str) -> None:
    with contextlib.suppress(OSError):  # it is in nobody's way but the disk's
        osal.remove(path)
