"""Lists one part of a source and reads what its names say: one task per class tar or folder.

The result is compact columns, not an object per image, since train has 1,281,167 of them.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from posixpath import basename
from typing import Final

import numpy as np
import numpy.typing as npt

from converter.findings import Finding, Findings
from converter.imagenet import (
    EXAMPLES,
    LARGEST_IMAGE_BYTES,
    NO_LABEL,
    ImageName,
    label_of_wnid,
    parse_image_name,
    parse_wnid,
    validation_labels,
)
from converter.sources.base import FOLDER, Damage, Listing, OpenPart, Part, SourceFile
from converter.sources.layouts import open_part
from converter.sources.names import ARCHIVE_SUFFIXES, OFFICIAL_NAMES, is_class_tar, is_known_folder
from converter.sources.stream_layout import PassingTar

ROW: Final = np.dtype(
    [("label", "<i2"), ("number", "<i4"), ("file", "<i4"), ("offset", "<i8"), ("size", "<i8")]
)
"""One image: its label, the number in its name, and where its bytes lie (26 bytes).

`offset` is what the layout finds it by, see `sources.base.Listing`.
"""

Rows = npt.NDArray[np.void]

_IMAGE_SUFFIXES: Final = (".jpeg", ".jpg", ".jpe", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_IMAGE_MAGIC: Final = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF")
_NEARLY: Final = re.compile(r"n\d{8}[^\d]|ilsvrc2012", re.IGNORECASE | re.ASCII)
"""How the name of an image begins that was an image of ImageNet before it was renamed."""
_DAMAGE_KINDS: Final = {"unreadable": "unreadable-folder", "unsupported": "unsupported-archive"}


@dataclass(frozen=True)
class Scan:
    """What one part holds.

    Attributes:
        rows: the images found, by split; their `file` counts in `files`.
        inner: archives and folders found inside, to be scanned in turn.
        findings: what was noticed.
        files: what the images are read from.
    """

    rows: dict[str, Rows]
    inner: tuple[Part, ...]
    findings: tuple[Finding, ...]
    files: tuple[SourceFile, ...] = ()


def scan_part(part: Part) -> Scan:
    """Lists a part and sorts its members into images, archives, folders and strays.

    Raises:
        SourceReadError: the system could not read the file.
    """
    with closing(open_part(part)) as source:
        if divided := source.divided():
            return Scan({}, tuple(divided), ())
        return _Scanner(part, source).run(source.listing())


class _Scanner:
    def __init__(self, part: Part, source: OpenPart) -> None:
        self._part = part
        self._source = source
        around = basename(part.container or part.path.replace("\\", "/"))
        self._class = parse_wnid(around) or part.wnid
        self._in_folder = part.kind == FOLDER
        self._columns: dict[str, array[int]] = {}
        self._files: dict[SourceFile, int] = {}
        self._inner: list[Part] = []
        self._findings = Findings()

    def run(self, listing: Listing) -> Scan:
        offsets, sizes = listing.offsets.tolist(), listing.sizes.tolist()
        for name, offset, size in zip(listing.names, offsets, sizes, strict=True):
            self._member(name, offset, size)
        return self._scan(listing)

    def _scan(self, listing: Listing) -> Scan:
        if listing.damage:
            self._damaged(listing.damage)
        elif not listing.has_end_marker:
            self._findings.add("no-end-marker", self._part.place)
        for other in listing.others:
            if other.kind != "folder":
                kind = "link" if parse_image_name(basename(other.name)) else "special"
                self._note(kind, other.name, other.offset, other.kind)
            elif self._in_folder:
                self._folder(other.name)
        rows = {split: _rows(column) for split, column in self._columns.items()}
        return Scan(rows, tuple(self._inner), tuple(self._findings), tuple(self._files))

    def _damaged(self, damage: Damage) -> None:
        kind = _DAMAGE_KINDS.get(damage.kind, "damaged-archive")
        self._findings.add(kind, f"{self._part.place}: {damage.message}")

    def _note(self, kind: str, name: str, offset: int, why: str = "") -> None:
        place = f"{self._part.place}!{name} at byte {offset}"
        if self._in_folder:
            place = os.path.join(self._part.path, *name.split("/"))
        self._findings.add(kind, f"{place}: {why}" if why else place)

    def _member(self, name: str, offset: int, size: int) -> None:
        base = basename(name)
        image = parse_image_name(base)
        if image is None:
            self._stray(name, base, offset, size)
            return
        label = self._label(image, name, offset)
        if label is None:
            return
        if size > LARGEST_IMAGE_BYTES:
            self._note("oversized", name, offset, f"{size:,} bytes")
            return
        if base != image.canonical:
            self._note("respelled-name", name, offset, f"stored as {image.canonical}")
        file, offset = self._source.located(name, image.canonical, offset, size)
        number = self._files.setdefault(file, len(self._files))
        column = self._columns.setdefault(image.split, array("q"))
        column.extend((label, image.number, number, offset, size))

    def _label(self, image: ImageName, name: str, offset: int) -> int | None:
        if image.split == "train":
            label = label_of_wnid().get(image.wnid or "")
            if label is None:
                self._note("unknown-class", name, offset)
                return None
        elif not 1 <= image.number <= EXAMPLES[image.split]:
            self._note("number-out-of-range", name, offset)
            return None
        elif image.split == "validation":
            label = validation_labels()[image.number - 1]
        else:
            label = NO_LABEL
        around = self._class_around(name)
        if around is not None and label_of_wnid().get(around) != label:
            self._note("class-mismatch", name, offset, f"in {around}")
            return None
        return label

    def _class_around(self, name: str) -> str | None:
        if "/" in name:
            for folder in reversed(name.split("/")[:-1]):
                if wnid := parse_wnid(folder):
                    return wnid
        return self._class

    def _stray(self, name: str, base: str, offset: int, size: int) -> None:
        lower = base.lower()
        if base.startswith("._") or "__MACOSX" in name.split("/"):
            self._note("junk", name, offset)
        elif self._class is None and (is_class_tar(base) or base in OFFICIAL_NAMES):
            self._archive(name, base, offset, size)
        elif lower.endswith(ARCHIVE_SUFFIXES):
            self._note("not-looked-into" if self._in_folder else "stray-archive", name, offset)
        elif lower.endswith(_IMAGE_SUFFIXES):
            self._other_image("misspelled-name", name, base, offset)
        elif self._source.head(name, offset, size).startswith(_IMAGE_MAGIC):
            self._other_image("stray-image", name, base, offset)
        else:
            self._note("junk", name, offset)

    def _other_image(self, kind: str, name: str, base: str, offset: int) -> None:
        """Notes an image that may be one of ImageNet's; in a folder others lie around."""
        harmless = self._in_folder and self._class is None and not _NEARLY.match(base)
        self._note("other-image" if harmless else kind, name, offset)

    def _archive(self, name: str, base: str, offset: int, size: int) -> None:
        wnid = parse_wnid(base)
        if wnid is not None and wnid not in label_of_wnid():
            self._note("unknown-class", name, offset)
        elif wnid is None and self._in_folder:
            self._note("not-looked-into", name, offset)  # it was looked at on its own
        else:
            self._enter(self._source.inside(name, offset, size), name, offset, wnid)

    def _folder(self, name: str) -> None:
        wnid = parse_wnid(name)
        if wnid is not None and wnid not in label_of_wnid():
            self._note("unknown-class", name, 0)
        elif wnid is not None:
            self._enter(self._source.inside(name, 0, 0), name, 0, wnid)
        elif self._class is not None or not is_known_folder(name):
            self._note("not-looked-into", name, 0)

    def _enter(self, inside: Part | str, name: str, offset: int, wnid: str | None) -> None:
        if isinstance(inside, str):
            self._note("stray-archive", name, offset, inside)
        else:
            self._look_inside(replace(inside, wnid=wnid, is_patch=self._part.is_patch))

    def _look_inside(self, inner: Part) -> None:
        self._inner.append(inner)


class _PassingScanner(_Scanner):
    """Sorts the members of a tar while they pass; tars inside it pass at the same time."""

    def __init__(self, part: Part, source: PassingTar) -> None:
        super().__init__(part, source)
        self._passing = source
        self.scans: list[tuple[Part, Scan]] = []

    def pass_over(self) -> list[tuple[Part, Scan]]:
        own = self._scan(self._passing.pass_members(self._member))
        return [(self._part, own), *self.scans]

    def _look_inside(self, inner: Part) -> None:
        self.scans += _PassingScanner(inner, self._passing.within(inner)).pass_over()


def scan_passing(part: Part, source: PassingTar) -> list[tuple[Part, Scan]]:
    """Scans a tar and the class tars in it in one pass, each member as it goes by.

    Raises:
        SourceReadError: the system could not read the stream.
        OutputError: what is laid aside cannot be written.
    """
    return _PassingScanner(part, source).pass_over()


def _rows(column: Sequence[int]) -> Rows:
    table = np.array(column, np.int64).reshape(-1, len(ROW.names or ()))
    rows = np.empty(len(table), ROW)
    for place, name in enumerate(ROW.names or ()):
        rows[name] = table[:, place]
    return rows
