"""Joins what the scans found into one index, and judges it against what ImageNet holds.

A label comes from a wnid or an image's number, never from a position in a list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from converter.class_counts import train_images
from converter.errors import SourceChangedError, SourceError, printable
from converter.findings import Finding, Findings, Severity, describe
from converter.imagenet import CLASSES, EXAMPLES, SPLITS, image_name, wnids
from converter.scan import Rows, Scan
from converter.sources.base import FOLDER, STREAM, Part, SourceFile
from converter.sources.identify import download_state
from converter.sources.reading import ImageReader, described_place

_COMPARED_DUPLICATES = 20_000
"""Up to here both copies are read and compared; beyond, doubled images are refused unread."""
_RANGES_SHOWN = 500
_LINES_SHOWN = 20
"""Of places of each kind, so that a refusal fits a terminal."""
_DOGS = (151, 275)
"""Labels of the first and the last breed of dogs."""
_TASK_3_CLASSES = range(100, 121)


@dataclass(frozen=True)
class Index:
    """Where each image lies and what it is.

    Attributes:
        files: the files that images are read from.
        splits: rows by split (see `scan.ROW`), sorted by label and number; their `file`
            counts in `files`.
        findings: everything that was noticed.
    """

    files: tuple[SourceFile, ...]
    splits: dict[str, Rows]
    findings: tuple[Finding, ...]

    def names(self, split: str) -> list[str]:
        """Returns the file name of every image of a split."""
        rows = self.splits[split]
        pairs = zip(rows["label"].tolist(), rows["number"].tolist(), strict=True)
        return [image_name(split, label, number) for label, number in pairs]

    def digest(self, split: str) -> str:
        """Returns a sha256 over a split's rows, which says whether two indexes are the same."""
        return hashlib.sha256(np.ascontiguousarray(self.splits[split]).tobytes()).hexdigest()

    def refuse_unless_sound(self, allow_incomplete: bool, list_all: str = "") -> None:
        """Raises what speaks against a conversion.

        Args:
            allow_incomplete: whether absent images are accepted.
            list_all: the command that lists everything that was found, if there is one.

        Raises:
            SourceError: lists every finding that stands in the way.
        """
        severities = [Severity.REFUSE] + ([] if allow_incomplete else [Severity.MISSING])
        grave = [finding for finding in self.findings if finding.severity in severities]
        if not grave:
            return
        advice = ""
        if all(finding.kind == "missing-split" for finding in grave) and self.splits:
            advice = f"\nTo convert only what is there, add --splits {','.join(self.splits)}."
        if all(finding.severity is Severity.MISSING for finding in grave):
            advice += "\nTo convert without what is missing, add --allow-incomplete."
        if list_all:
            advice += f"\nThis lists everything that was found:\n    {list_all}"
        raise SourceError(
            f"the source cannot be converted:\n{describe(grave, _LINES_SHOWN)}{advice}"
        )


def build_index(
    scans: Iterable[tuple[Part, Scan]], splits: Sequence[str] | None, expected: Sequence[str]
) -> Index:
    """Joins the scans of all parts.

    Args:
        scans: each part with what was found in it.
        splits: the wanted splits, None for all that are there.
        expected: the splits whose absence is a finding.

    Raises:
        SourceReadError: the system could not read a file while doubled images were compared.
        SourceChangedError: a file changed while it was indexed.
    """
    findings = Findings()
    numbers: dict[SourceFile, int] = {}
    columns: dict[str, list[Rows]] = {}
    patches: dict[str, list[Rows]] = {}
    for part, scan in sorted(scans, key=lambda pair: (pair[0].path, pair[0].start)):
        findings.update(scan.findings)
        places = [numbers.setdefault(file, len(numbers)) for file in scan.files]
        for split, rows in scan.rows.items():
            if splits is None or split in splits:
                rows["file"] = np.array(places, np.int32)[rows["file"]]
                (patches if part.is_patch else columns).setdefault(split, []).append(rows)
    files = tuple(numbers)
    _refuse_changed(files)
    joined: dict[str, Rows] = {}
    for split in SPLITS:
        if split in columns or split in patches:
            rows = _patched(split, columns.pop(split, []), patches.get(split, []), files, findings)
            rows = rows[np.lexsort((rows["offset"], rows["file"], rows["number"], rows["label"]))]
            joined[split] = _without_duplicates(split, rows, files, findings)
            _judge_completeness(split, joined[split], findings)
        elif split in expected:
            findings.add("missing-split", split)
    _judge_downloads(files, findings)
    return Index(files, joined, tuple(findings))


def _refuse_changed(files: Sequence[SourceFile]) -> None:
    """Raises that a file is not the same in two of the parts that lie in it."""
    seen: dict[str, tuple[int, int]] = {}
    for file in files:
        state = file.size, file.mtime_ns
        if file.kind != FOLDER and seen.setdefault(file.path, state) != state:
            raise SourceChangedError(
                f"{printable(file.path)} changed while it was indexed; run again when it is whole"
            )


def _patched(
    split: str,
    plain: Sequence[Rows],
    patches: Sequence[Rows],
    files: Sequence[SourceFile],
    findings: Findings,
) -> Rows:
    """Returns all rows of a split, without those that a patch replaces."""
    if not patches:
        return np.concatenate(plain)
    patch = np.concatenate(patches)
    rows = np.concatenate([*plain, patch[:0]])
    replaced = np.isin(rows["number"], patch["number"])
    for row in rows[replaced]:
        findings.add("patched", _placed(split, row, files))
    return np.concatenate([rows[~replaced], patch])


def _without_duplicates(
    split: str, rows: Rows, files: Sequence[SourceFile], findings: Findings
) -> Rows:
    same = (rows["label"][1:] == rows["label"][:-1]) & (rows["number"][1:] == rows["number"][:-1])
    doubled = np.flatnonzero(same) + 1
    with closing(ImageReader(files)) as reader:
        for count, position in enumerate(doubled.tolist()):
            pair = rows[position - 1], rows[position]
            name = image_name(split, int(pair[1]["label"]), int(pair[1]["number"]))
            if pair[0]["size"] != pair[1]["size"]:
                kind = "conflicting-duplicate"
            elif count >= _COMPARED_DUPLICATES or any(
                files[int(row["file"])].kind == STREAM for row in pair
            ):
                kind = "unread-duplicate"
            else:
                data = [reader.read(*_where(row, name)) for row in pair]
                kind = f"{'identical' if data[0] == data[1] else 'conflicting'}-duplicate"
            places = " and ".join(_placed(split, row, files) for row in pair)
            findings.add(kind, f"{name}: {places}")
    return np.delete(rows, doubled)


def _where(row: np.void, name: str) -> tuple[int, str, int, int]:
    """Returns the arguments that read an image."""
    return int(row["file"]), name, int(row["offset"]), int(row["size"])


def _placed(split: str, row: np.void, files: Sequence[SourceFile]) -> str:
    """Returns how a message names the place of an image."""
    name = image_name(split, int(row["label"]), int(row["number"]))
    file = files[int(row["file"])]
    path, offset = described_place(file, name, int(row["offset"]))
    return path if file.kind == FOLDER else f"{path} at byte {offset}"


def _judge_completeness(split: str, rows: Rows, findings: Findings) -> None:
    expected = EXAMPLES[split]
    if split == "train":
        counts = np.bincount(rows["label"], minlength=CLASSES)
        held = np.flatnonzero(counts)
        if len(held) in _TASK_3_CLASSES and held[0] >= _DOGS[0] and held[-1] <= _DOGS[1]:
            findings.add(
                "task-3", f"{len(held)} classes, {wnids()[held[0]]} to {wnids()[held[-1]]}"
            )
        for label in np.flatnonzero(counts == 0).tolist():
            findings.add("missing-class", wnids()[label])
        if len(rows) > expected:
            findings.add("extra-images", f"{split}: {len(rows):,} of {expected:,}")
        for wnid, count in zip(wnids(), counts.tolist(), strict=True):
            if len(rows) < expected and 0 < count < train_images(wnid):
                findings.add("short-class", f"{wnid}: {count:,} of {train_images(wnid):,}")
    if len(rows) < expected:
        missing = f"{split}: {expected - len(rows):,} of {expected:,}"
        if split != "train":
            absent = np.setdiff1d(np.arange(1, expected + 1, dtype=np.int32), rows["number"])
            missing += f", numbers {', '.join(_ranges(absent))}"
        findings.add("missing-images", missing)


def _judge_downloads(files: Sequence[SourceFile], findings: Findings) -> None:
    """Adds what explains the rest: an archive that is only partly there."""
    if findings.of(Severity.REFUSE, Severity.MISSING):
        for file in files:
            if state := download_state(Path(file.path), file.size):
                findings.add("partial-download", state)


def _ranges(numbers: npt.NDArray[np.int32]) -> Iterator[str]:
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    for run in runs[:_RANGES_SHOWN]:
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
    if len(runs) > _RANGES_SHOWN:
        yield f"and {len(runs) - _RANGES_SHOWN:,} more ranges"
