"""The folders of one output: the dataset, the work folder beside it, the lock."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from converter import osal
from converter.errors import OutputError, VerificationError, printable
from converter.imagenet import DATASET, SPLITS
from converter.journal import JOURNAL, OutputLock
from converter.output import WORK_PREFIX, command_line, make_folder, output_errors, write_durably
from converter.published import (
    CHECKSUMS,
    INFO,
    METADATA,
    REPORT_NAME,
    PublishedSplit,
    read_info,
)
from converter.staged_source import is_kept

LONGEST_NAME: Final = f"{DATASET}-validation.tfrecord-00000-of-00000.tmp"
"""As long as the longest name of a file in the folder of the dataset."""


@dataclass(frozen=True)
class Workspace:
    """Where things stand.

    Attributes:
        out: TFDS's data_dir.
        version: the dataset's version, such as 5.1.0.
    """

    out: Path
    version: str

    @property
    def final(self) -> Path:
        """The published dataset; appears complete or not at all."""
        return self.out / DATASET / self.version

    @property
    def work(self) -> Path:
        """The journal, the saved index and all that is unfinished."""
        return self.out / DATASET / f"{WORK_PREFIX}{self.version}"

    @property
    def dataset(self) -> Path:
        """The dataset under construction; it becomes `final` by one rename."""
        return self.work / "dataset"

    @property
    def converted(self) -> Path:
        """The images that TFDS re-encodes."""
        return self.work / "converted"

    @property
    def staging(self) -> Path:
        """Where sources are staged unless another folder is chosen."""
        return self.work / "staging"

    @property
    def lock(self) -> Path:
        """Held by the one run that may write here."""
        return self.work.parent / f".imagenet-convert_{self.version}.lock"

    @property
    def replaced(self) -> Path:
        """An older dataset, for the moment in which a new one takes its place."""
        return self.final.with_name(f"{WORK_PREFIX}{self.version}.replaced")

    def published(self) -> dict[str, PublishedSplit]:
        """Returns the splits of the dataset that is there already, nothing where there is none.

        Raises:
            OutputError: what is there cannot be read as a dataset.
        """
        if not os.path.lexists(self.final):
            return {}
        try:
            splits = read_info(self.final)
        except VerificationError as error:
            raise OutputError(f"{error}. Replace the dataset with --restart.") from error
        names = [name for split in splits.values() for name in split.shard_names]
        if absent := [name for name in names if not (self.final / name).is_file()]:
            raise OutputError(
                f"the dataset in {printable(str(self.final))} lacks {len(absent):,} of its "
                f"{len(names):,} shards, such as {absent[0]}. Replace it with --restart."
            )
        return splits

    def refuse_existing(self) -> None:
        """Raises that the dataset is there already.

        Raises:
            OutputError: says how to check it and how to replace it.
        """
        raise OutputError(
            f"{printable(str(self.final))} exists already. Check it with "
            f"`{command_line('verify', self.out)}`, or replace it with --restart."
        )

    def require_kept(self, splits: Collection[str]) -> None:
        """Checks that a run that replaces the dataset makes all of its splits anew.

        Args:
            splits: those that the run makes.

        Raises:
            OutputError: names the splits that would be lost.
        """
        lost = [split for split in self._visible_splits() if split not in splits]
        if lost:
            raise OutputError(
                f"{printable(str(self.final))} also holds {' and '.join(lost)}, which --restart "
                f"would delete, since this run makes {' and '.join(splits)} only. Give all the "
                "archives (and name every split where --splits is given), or remove the folder by "
                "hand."
            )

    def _visible_splits(self) -> list[str]:
        """Returns the splits of the dataset, by its files where its metadata is unreadable."""
        try:
            return list(self.published())
        except OutputError:
            return [split for split in SPLITS if any(self.final.glob(f"{DATASET}-{split}.*"))]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folders and holds the lock; leaves nothing behind where nothing was done.

        Raises:
            LockedError: another run works on this output.
            OutputError: the output cannot be written.
        """
        made = [place for place in (self.work, *self.work.parents) if not place.exists()]
        make_folder(self.work.parent)
        try:
            with OutputLock(self.lock):
                self._recover()
                make_folder(self.dataset)
                try:
                    yield
                finally:
                    if not (self.work / JOURNAL).exists() and not is_kept(self.staging):
                        with contextlib.suppress(OSError):
                            osal.remove_folder(self.work)
        finally:
            for place in made:
                with contextlib.suppress(OSError):
                    place.rmdir()

    def _recover(self) -> None:
        """Finishes what a crash during the final renames left half done."""
        with output_errors(self.final):
            if os.path.lexists(self.replaced):
                if os.path.lexists(self.final):
                    _remove(self.replaced)
                else:
                    osal.replace(self.replaced, self.final)
            if self.work.exists() and self.final.exists():
                if not self.dataset.exists():
                    osal.remove_folder(self.work)
                elif self._joined():
                    self._finish_join()

    def _joined(self) -> bool:
        """Returns whether the split of an interrupted run has become visible already."""
        made, visible = self.dataset / INFO, self.final / INFO
        if not made.exists() or not visible.exists() or any(self.dataset.glob("*.tfrecord-*")):
            return False
        return made.read_bytes() == visible.read_bytes()

    def discard_shards(self) -> None:
        """Removes the journal and what earlier runs have written; the index stays.

        Raises:
            OutputError: something cannot be removed.
        """
        with output_errors(self.work):
            # Without it the rest does not look like a join's.
            osal.remove(self.dataset / INFO, missing_ok=True)
            osal.remove(self.work / JOURNAL, missing_ok=True)
            osal.remove_folder(self.dataset)
            shutil.rmtree(self.converted, ignore_errors=True)
        make_folder(self.dataset)

    def commit(self) -> None:
        """Makes the finished folder the dataset: one rename, the only commit point.

        An older dataset is moved aside just before, and removed afterwards with the work folder.

        Raises:
            OutputError: a rename is not possible.
        """
        with output_errors(self.final):
            osal.fsync_folder(self.dataset)
            if os.path.lexists(self.final):
                osal.replace(self.final, self.replaced)
            osal.replace(self.dataset, self.final)
            osal.fsync_folder(self.final.parent)
            osal.fsync_folder(self.work)
            osal.remove_folder(self.work)
            if os.path.lexists(self.replaced):
                _remove(self.replaced)

    def take_back(self, names: Iterable[str]) -> None:
        """Takes finished shards back that a crash left in the dataset before they joined it.

        Args:
            names: shards of splits that the dataset does not have.

        Raises:
            OutputError: a rename is not possible.
        """
        with output_errors(self.final):
            for name in names:
                if (self.final / name).exists() and not (self.dataset / name).exists():
                    osal.replace(self.final / name, self.dataset / name)

    def join(self, names: Iterable[str]) -> None:
        """Adds finished shards to the dataset; replacing dataset_info.json is the commit point.

        Until then nothing refers to them. What a crash leaves is finished by the next run.

        Args:
            names: the shards' file names.

        Raises:
            OutputError: a rename is not possible.
        """
        with output_errors(self.final):
            osal.fsync_folder(self.dataset)
            for name in names:
                osal.replace(self.dataset / name, self.final / name)
            osal.fsync_folder(self.final)
            osal.fsync_folder(self.dataset)
            for name in (*METADATA[1:], INFO):  # another version of TFDS may have spelt them else
                write_durably(self.final / name, (self.dataset / name).read_bytes())
            self._finish_join()

    def _finish_join(self) -> None:
        for name in (CHECKSUMS, REPORT_NAME):
            if (self.dataset / name).exists():
                write_durably(self.final / name, (self.dataset / name).read_bytes())
        osal.replace(self.dataset, self.work / "joined")  # from here on nothing is left to finish
        osal.remove_folder(self.work)


def _remove(path: Path) -> None:
    """Removes a folder with all that is in it; of a link, the link."""
    if path.is_symlink() or path.is_file():
        osal.remove(path)
    else:
        osal.remove_folder(path)
