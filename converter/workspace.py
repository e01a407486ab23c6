"""The folders of one output: the dataset, the work folder beside it, the lock."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from converter import osal
from converter.errors import OutputError, printable
from converter.imagenet import DATASET
from converter.journal import JOURNAL, OutputLock
from converter.output import make_folder, output_errors


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
        return self.out / DATASET / f"incomplete.imagenet-convert_{self.version}"

    @property
    def dataset(self) -> Path:
        """The dataset under construction; it becomes `final` by one rename."""
        return self.work / "dataset"

    @property
    def converted(self) -> Path:
        """The images that TFDS re-encodes."""
        return self.work / "converted"

    @property
    def replaced(self) -> Path:
        """An older dataset, for the moment in which a new one takes its place."""
        return self.final.with_name(f"incomplete.imagenet-convert_{self.version}.replaced")

    def refuse_existing(self) -> None:
        """Raises where the dataset is there already.

        Raises:
            OutputError: says how to check it and how to replace it.
        """
        if self.final.exists():
            if not self.dataset.exists():  # a crash left it, after the dataset was committed
                shutil.rmtree(self.work, ignore_errors=True)
            raise OutputError(
                f"{printable(str(self.final))} exists already. Check it with `imagenet-convert "
                f"verify {printable(str(self.out))}`, or replace it with --restart."
            )

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
            with OutputLock(self.work.parent / f".imagenet-convert_{self.version}.lock"):
                self._recover()
                make_folder(self.dataset)
                try:
                    yield
                finally:
                    if not (self.work / JOURNAL).exists():
                        shutil.rmtree(self.work, ignore_errors=True)
        finally:
            for place in made:
                with contextlib.suppress(OSError):
                    place.rmdir()

    def _recover(self) -> None:
        """Finishes what a crash during the final renames left half done."""
        with output_errors(self.final):
            if self.replaced.exists():
                if self.final.exists():
                    shutil.rmtree(self.replaced)
                elif not self.dataset.exists():
                    osal.replace(self.replaced, self.final)
            if self.work.exists() and not self.dataset.exists() and self.final.exists():
                shutil.rmtree(self.work)

    def discard_shards(self) -> None:
        """Removes the journal and what earlier runs have written; the index stays.

        Raises:
            OutputError: something cannot be removed.
        """
        with output_errors(self.work):
            (self.work / JOURNAL).unlink(missing_ok=True)
            shutil.rmtree(self.dataset)
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
            if self.final.exists():
                osal.replace(self.final, self.replaced)
            osal.replace(self.dataset, self.final)
            osal.fsync_folder(self.final.parent)
            osal.fsync_folder(self.work)
            shutil.rmtree(self.work)
            if self.replaced.exists():
                shutil.rmtree(self.replaced)
