"""What a conversion did, for people and for programs."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from converter.checksum import Checksum
from converter.errors import printable
from converter.findings import Finding, Severity, describe
from converter.imagenet import DATASET, EXAMPLES
from converter.index import Index
from converter.options import Options
from converter.progress import duration
from converter.published import REPORT_NAME, read_report, seal
from converter.shards import ImageNote, ShardResult
from converter.sources.base import STAGED
from converter.workspace import Workspace


@dataclass(frozen=True)
class SplitReport:
    """One split of the dataset.

    Attributes:
        images: examples written.
        shards: number of files.
        num_bytes: serialized examples in bytes, without framing (TFDS's numBytes).
        file_bytes: length of all its files together.
        about: whether the bytes are only nearly known, before odd images are converted.
        complete: whether it has as many examples as ImageNet 2012.
    """

    images: int
    shards: int
    num_bytes: int
    file_bytes: int
    about: bool
    complete: bool


@dataclass(frozen=True)
class Report:
    """What a conversion did.

    Attributes:
        data_dir: what to give `tfds.load`.
        dataset_dir: the folder of the dataset's version.
        published: False for a dry run.
        outlook: what a run would find at the output, of a dry run only.
        splits: by name.
        sources: the archives that were read, with size and modification time.
        options: the options that bear on the result.
        versions: of this package, TFDS, Pillow and Python.
        images: images written by this run.
        reused_images: images in shards of earlier runs that were kept.
        seconds: duration of this run.
        index_seconds: how much of it was spent on the index.
        writing_seconds: how much of it was spent on writing shards.
        images_per_second: of this run, while writing the shards.
        findings: what was noticed about the source.
        corrupt: corrupt images, skipped or kept.
        unusual: images in another format than RGB or grayscale JPEG, stored as they are.
        runs: every run that worked on this output, with its interruptions.
        checksums: the archives compared with the official ones, where that was asked for.
        joined_splits: the splits of the dataset that these were added to.
        joined_to: the report of that dataset, where it has one.
    """

    data_dir: str
    dataset_dir: str
    published: bool
    outlook: tuple[str, ...]
    splits: dict[str, SplitReport]
    sources: tuple[dict[str, Any], ...]
    options: dict[str, Any]
    versions: dict[str, str]
    images: int
    reused_images: int
    seconds: float
    index_seconds: float
    writing_seconds: float
    images_per_second: float
    findings: tuple[Finding, ...]
    corrupt: tuple[ImageNote, ...]
    unusual: tuple[ImageNote, ...]
    runs: tuple[dict[str, Any], ...]
    checksums: tuple[Checksum, ...]
    joined_splits: tuple[str, ...]
    joined_to: dict[str, Any] | None

    def timed(
        self, began: float, indexing: float, seconds: float, reused: Sequence[ShardResult]
    ) -> Report:
        """Returns the report of a finished run.

        Args:
            began: monotonic time of its start.
            indexing: how many seconds the index took.
            seconds: how long it wrote shards.
            reused: shards of earlier runs.
        """
        kept = sum(shard.records for shard in reused)
        images = sum(split.images for split in self.splits.values()) - kept
        return replace(
            self,
            published=True,
            images=images,
            reused_images=kept,
            seconds=round(time.monotonic() - began, 3),
            index_seconds=round(indexing, 3),
            writing_seconds=round(seconds, 3),
            images_per_second=round(images / max(seconds, 1e-6), 1),
        )

    def foreseen(self, outlook: Sequence[str], about: bool) -> Report:
        """Returns the report of a dry run.

        Args:
            outlook: what a run would find at the output.
            about: whether the bytes of the train split are only nearly known.
        """
        splits = {
            name: replace(split, about=about and name == "train")
            for name, split in self.splits.items()
        }
        return replace(self, outlook=tuple(outlook), splits=splits)

    def to_json(self) -> str:
        """Returns the report as JSON text, with its own checksum (see `published.seal`)."""
        plain = asdict(self)
        for finding, found in zip(plain["findings"], self.findings, strict=True):
            finding.update(severity=found.severity.value, summary=found.summary)
        return seal(json.dumps(plain, indent=2, ensure_ascii=True))

    @property
    def load_line(self) -> str:
        """The Python line that loads the dataset."""
        return f"tfds.load({DATASET!r}, data_dir={self.data_dir!a})"

    @property
    def _speed(self) -> str:
        text = f"{self.images:,} images in {duration(self.seconds)}"
        if self.images:
            text += (
                f", of which {duration(self.writing_seconds)} writing shards "
                f"({self.images_per_second:,.0f} images/s)"
            )
        if self.reused_images:
            text += f"; {self.reused_images:,} kept from earlier runs"
        return text

    def __str__(self) -> str:
        """Returns what a person wants to read at the end."""
        lines = []
        for name, split in self.splits.items():
            whole = "complete" if split.complete else f"of {EXAMPLES[name]:,}: incomplete"
            lines.append(
                f"{name:<11} {split.images:>9,} images ({whole}), {split.shards:,} "
                f"{'shard' if split.shards == 1 else 'shards'}, "
                f"{'about ' * split.about}{split.file_bytes:,} bytes"
            )
        if self.published:
            lines.append(self._speed)
        lines += [str(checksum) for checksum in self.checksums]
        notes = [f for f in self.findings if f.severity is not Severity.REFUSE]
        if notes:
            lines.append("Noticed:\n" + describe(notes, lines=5))
        for title, images in (
            (f"Corrupt images ({self.options['on_corrupt']})", self.corrupt),
            ("Images of an unusual format, stored as they are", self.unusual),
        ):
            if images:
                lines.append(f"{title}: {len(images):,}")
                lines += [f"    {image}" for image in images[:20]]
                if len(images) > 20:
                    lines.append(f"    ... and {len(images) - 20:,} more, see {REPORT_NAME}")
        if self.published:
            if self.joined_splits:
                lines.append(
                    f"Joined {' and '.join(self.splits)} to the dataset, which held "
                    f"{' and '.join(self.joined_splits)}"
                )
            lines += [f"Dataset: {printable(self.dataset_dir)}", f"Load it: {self.load_line}"]
        return "\n".join([*lines, *self.outlook])


def versions() -> dict[str, str]:
    """Returns the versions that bear on the result."""
    names = ("imagenet-convert", "tensorflow-datasets", "pillow", "joblib")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def make_report(
    space: Workspace,
    options: Options,
    index: Index,
    shards: Mapping[str, Sequence[ShardResult]],
    runs: Sequence[dict[str, Any]],
    checksums: Sequence[Checksum],
    joined_splits: Sequence[str] = (),
) -> Report:
    """Returns the report of a plan, or of shards that were written."""
    results = [shard for written in shards.values() for shard in written]
    return Report(
        data_dir=str(space.out),
        dataset_dir=str(space.final),
        published=False,
        outlook=(),
        splits={split: _split_report(split, written) for split, written in shards.items()},
        sources=_sources(index),
        options=options.reported(),
        versions=versions(),
        images=0,
        reused_images=0,
        seconds=0.0,
        index_seconds=0.0,
        writing_seconds=0.0,
        images_per_second=0.0,
        findings=index.findings,
        corrupt=tuple(image for shard in results for image in shard.corrupt),
        unusual=tuple(image for shard in results for image in shard.unusual),
        runs=tuple(runs),
        checksums=tuple(checksums),
        joined_splits=tuple(joined_splits),
        joined_to=read_report(space.final) if joined_splits else None,
    )


def _sources(index: Index) -> tuple[dict[str, Any], ...]:
    """Returns the files that were read; for what was staged, its source."""
    staged: dict[str, int] = {}
    for file in index.files:
        if file.kind == STAGED:
            staged[file.spelling] = staged.get(file.spelling, 0) + file.size
    return (
        *(asdict(file) for file in index.files if file.kind != STAGED),
        *({"path": path, "staged_bytes": size, "kind": STAGED} for path, size in staged.items()),
    )


def _split_report(split: str, shards: Sequence[ShardResult]) -> SplitReport:
    images = sum(shard.records for shard in shards)
    return SplitReport(
        images=images,
        shards=len(shards),
        num_bytes=sum(shard.num_bytes for shard in shards),
        file_bytes=sum(shard.size for shard in shards),
        about=False,
        complete=images == EXAMPLES[split],
    )
