"""What is noticed about a source: kinds, how grave they are, and how they read."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from converter.errors import printable

PLACES_KEPT: Final = 2000
"""Places remembered per kind; a hostile archive must not fill the memory with them."""

_SHORT_PLACE: Final = 40
_LONG_PLACE: Final = 1000
_ROW: Final = 96


class Severity(enum.Enum):
    """What a finding means for the conversion."""

    REFUSE = "refuse"
    """The source cannot be trusted: never converted."""
    MISSING = "missing"
    """Something is absent: converted with `--allow-incomplete` only."""
    NOTE = "note"
    """Harmless, but said."""


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        severity: what it means for the conversion.
        text: what was found, with `{count}`.
        remedy: what to do about it, or nothing.
    """

    severity: Severity
    text: str
    remedy: str = ""


KINDS: Final = {
    "damaged-archive": Kind(
        Severity.REFUSE,
        "damaged archive ({count})",
        "download or copy the archive again; a damaged archive is never converted",
    ),
    "unreadable-folder": Kind(
        Severity.REFUSE, "{count} folders that cannot be looked into; none is skipped in silence"
    ),
    "unsupported-archive": Kind(
        Severity.REFUSE,
        "{count} archives of a kind that cannot be read in place",
        "unpack them with the program that made them, and give the folder",
    ),
    "unknown-class": Kind(
        Severity.REFUSE,
        "this is not ILSVRC2012: {count} classes or images of classes that it does not have",
        "other releases (such as fall11 or winter21) cannot be converted; give "
        "ILSVRC2012_img_train.tar",
    ),
    "class-mismatch": Kind(
        Severity.REFUSE, "{count} images whose name and class folder or class tar disagree"
    ),
    "number-out-of-range": Kind(
        Severity.REFUSE, "{count} images whose number ILSVRC2012 does not have"
    ),
    "misspelled-name": Kind(
        Severity.REFUSE, "{count} images whose name is not spelled as ILSVRC2012 spells it"
    ),
    "stray-image": Kind(Severity.REFUSE, "{count} strays that hold images under another name"),
    "stray-archive": Kind(
        Severity.REFUSE, "{count} archives inside the archive that are no class tars"
    ),
    "link": Kind(
        Severity.REFUSE,
        "{count} links, sparse or special members under an image's name; they are not followed",
    ),
    "oversized": Kind(
        Severity.REFUSE, "{count} members larger than any ImageNet image (64 MiB or more)"
    ),
    "conflicting-duplicate": Kind(
        Severity.REFUSE, "{count} images found twice with different bytes"
    ),
    "unread-duplicate": Kind(
        Severity.REFUSE,
        "{count} more images are found twice, too many to compare them all",
        "give only one of the sources that hold them",
    ),
    "extra-images": Kind(Severity.REFUSE, "more images than ILSVRC2012 has"),
    "missing-split": Kind(
        Severity.MISSING,
        "splits without an archive: {count}",
        "give the archive with --source, or name the splits that are wanted with --splits",
    ),
    "partial-download": Kind(
        Severity.MISSING,
        "archives shorter than the official ones, as an unfinished download is: {count}",
        "let the download finish, or repeat it",
    ),
    "task-3": Kind(
        Severity.MISSING,
        "only breeds of dogs: this is the archive of Task 3, not of Tasks 1 and 2",
        "give ILSVRC2012_img_train.tar of 147,897,477,120 bytes",
    ),
    "missing-class": Kind(Severity.MISSING, "{count} of the 1,000 train classes are missing"),
    "short-class": Kind(Severity.MISSING, "{count} train classes lack images"),
    "missing-images": Kind(Severity.MISSING, "images are missing"),
    "identical-duplicate": Kind(
        Severity.NOTE, "{count} images found twice with identical bytes, counted once"
    ),
    "respelled-name": Kind(
        Severity.NOTE, "{count} names in another spelling, stored under the official one"
    ),
    "junk": Kind(Severity.NOTE, "{count} files that are no images, ignored"),
    "patched": Kind(
        Severity.NOTE, "{count} test images replaced by those of the patch of October 10, 2019"
    ),
    "other-image": Kind(Severity.NOTE, "{count} images that are not ImageNet's, ignored"),
    "not-looked-into": Kind(
        Severity.NOTE, "{count} folders and archives under other names, not looked into"
    ),
    "read-once": Kind(
        Severity.NOTE, "{count} folders or archives that are reached in several ways, read once"
    ),
    "special": Kind(Severity.NOTE, "{count} links or special members, ignored"),
    "no-end-marker": Kind(
        Severity.NOTE, "archives without an end-of-archive mark, all members whole: {count}"
    ),
}


@dataclass(frozen=True)
class Finding:
    """Everything of one kind.

    Attributes:
        kind: a key of `KINDS`.
        count: how often it was found.
        places: where, or what exactly; the first 2,000.
    """

    kind: str
    count: int
    places: tuple[str, ...]

    @property
    def severity(self) -> Severity:
        """What it means for the conversion."""
        return KINDS[self.kind].severity

    @property
    def summary(self) -> str:
        """One line, printable anywhere."""
        return KINDS[self.kind].text.format(count=f"{self.count:,}")

    @property
    def remedy(self) -> str:
        """What to do about it, or nothing."""
        return KINDS[self.kind].remedy


class Findings:
    """Collects findings by kind."""

    def __init__(self, noted: Iterable[tuple[str, str]] = ()) -> None:
        self._places: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        for kind, place in noted:
            self.add(kind, place)

    def add(self, kind: str, place: str) -> None:
        """Adds one occurrence; `place` says where, or what exactly."""
        places = self._places.setdefault(kind, [])
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if len(places) < PLACES_KEPT:
            places.append(printable(place))

    def update(self, other: Iterable[Finding]) -> None:
        """Adds all of another collection."""
        for finding in other:
            places = self._places.setdefault(finding.kind, [])
            places += finding.places[: PLACES_KEPT - len(places)]
            self._counts[finding.kind] = self._counts.get(finding.kind, 0) + finding.count

    def __iter__(self) -> Iterator[Finding]:
        for kind in KINDS:
            if kind in self._counts:
                yield Finding(kind, self._counts[kind], tuple(self._places[kind]))

    def of(self, *severities: Severity) -> list[Finding]:
        """Returns the findings of these severities, gravest first."""
        return [finding for finding in self if finding.severity in severities]


def describe(findings: Iterable[Finding], lines: int = PLACES_KEPT) -> str:
    """Returns the findings as text: a line each, the places indented below.

    Short places, such as wnids, stand several on a line.

    Args:
        findings: what to describe.
        lines: how many lines of places of each are listed; the rest is counted. Where it is not
            all of them, a very long place is cut too.
    """
    told = []
    for finding in findings:
        told.append(finding.summary + (f": {finding.remedy}" if finding.remedy else ""))
        rows = list(_rows(finding.places))[:lines]
        for row in rows:
            text = "; ".join(row)
            cut = lines < PLACES_KEPT and len(text) > _LONG_PLACE
            told.append(f"    {text[:_LONG_PLACE]} ..." if cut else f"    {text}")
        if left := finding.count - sum(map(len, rows)):
            told.append(f"    ... and {left:,} more")
    return "\n".join(told)


def _rows(places: Sequence[str]) -> Iterator[list[str]]:
    row: list[str] = []
    for place in places:
        if row and (
            len("; ".join([*row, place])) > _ROW or max(map(len, [*row, place])) > _SHORT_PLACE
        ):
            yield row
            row = []
        row.append(place)
    if row:
        yield row
