"""Says what a source holds and what is wrong with it; writes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from converter import pool
from converter.errors import SourceError
from converter.findings import Finding, Severity, describe
from converter.imagenet import EXAMPLES, EXPECTED_SPLITS
from converter.indexing import make_index
from converter.options import StrPath, absolute, default_out, named_splits
from converter.progress import Progress
from converter.sources.find import Verdict, find_sources


@dataclass(frozen=True)
class SplitContents:
    """What was found of one split.

    Attributes:
        images: how many images.
        expected: how many ImageNet 2012 has.
        classes: how many classes they belong to, 0 in the test split.
        bytes: length of the image files together.
    """

    images: int
    expected: int
    classes: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """What a source holds.

    Attributes:
        verdicts: what every file and folder that was looked at was taken for, or why not.
        splits: the contents by split.
        findings: everything that was noticed, gravest first.
    """

    verdicts: tuple[Verdict, ...]
    splits: dict[str, SplitContents]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether a plain conversion would begin."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def require_sound(self) -> None:
        """Raises where a plain conversion would refuse.

        Raises:
            SourceError: sets the exit code; the findings say what it is about.
        """
        if not self.sound:
            grave = [f.summary for f in self.findings if f.severity is not Severity.NOTE]
            raise SourceError(f"the source is not ready to convert: {'; '.join(grave)}")

    def to_json(self) -> str:
        """Returns everything as JSON text."""
        plain = asdict(self)
        for finding, found in zip(plain["findings"], self.findings, strict=True):
            finding.update(severity=found.severity.value, summary=found.summary)
        return json.dumps({**plain, "sound": self.sound}, indent=2, ensure_ascii=True)

    def __str__(self) -> str:
        lines = [str(verdict) for verdict in self.verdicts]
        lines += ["", f"{'split':<11} {'images':>10} {'of':>10} {'classes':>8} {'bytes':>16}"]
        for split, found in self.splits.items():
            lines.append(
                f"{split:<11} {found.images:>10,} {found.expected:>10,} {found.classes:>8,} "
                f"{found.bytes:>16,}"
            )
        for severity, title in (
            (Severity.REFUSE, "Never converted"),
            (Severity.MISSING, "Converted with --allow-incomplete only"),
            (Severity.NOTE, "Harmless"),
        ):
            found_here = [f for f in self.findings if f.severity is severity]
            if found_here:
                lines += ["", f"{title}:", describe(found_here)]
        lines += ["", "Ready to convert." if self.sound else "Not ready to convert."]
        return "\n".join(lines)


def inspect(
    source: Sequence[StrPath] = (),
    out: StrPath | None = None,
    *,
    workers: int | None = None,
    splits: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Indexes a source and judges it, as a conversion would.

    Args:
        source: archives, or folders of them or of images; by default TFDS's manual folder under
            `out`, then the current folder.
        out: a TFDS data_dir.
        workers: processes; by default one per CPU that this process may use.
        splits: the wanted splits; by default train and validation, and test if found.
        progress: what shows the steps.

    Raises:
        UsageError: a split does not exist.
        SourceError: nothing was found, or a file could not be read.
    """
    chosen = named_splits(splits)
    found = find_sources(
        [absolute(path) for path in source],
        absolute(default_out() if out is None else out),
        chosen,
    )
    try:
        index = make_index(
            found.parts,
            chosen,
            chosen or EXPECTED_SPLITS,
            workers or pool.default_workers(),
            progress or Progress(),
        )
    finally:
        pool.shut_down()
    contents = {
        split: SplitContents(
            images=len(rows),
            expected=EXAMPLES[split],
            classes=len(np.unique(rows["label"])) if split != "test" else 0,
            bytes=int(rows["size"].sum()),
        )
        for split, rows in index.splits.items()
    }
    return Inspection(found.verdicts, contents, index.findings)
