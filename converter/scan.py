"""Lists one part of a source and reads what its names say: one task per class tar.

The result is compact columns, not an object per image, since train has 1,281,167 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from converter.osal import RandomReader
from converter.sources.base import Part
from converter.sources.tar import TarListing, list_members

ROW: Final = np.dtype(
    [("label", "<i2"), ("number", "<i4"), ("file", "<i4"), ("offset", "<i8"), ("size", "<i8")]
)
"""One image: its label, the number in its name, and where its bytes lie (26 bytes)."""

Rows = npt.NDArray[np.void]

_IMAGE_SUFFIXES: Final = (".jpeg", ".jpg", ".jpe", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz")
_IMAGE_MAGIC: Final = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF")


@dataclass(frozen=True)
class Scan:
    """What one part holds.

    Attributes:
        rows: the images found, by split; their `file` column is still zero.
        inner: class tars found inside, to be scanned in turn.
        findings: what was noticed.
    """

    rows: dict[str, Rows]
    inner: tuple[Part, ...]
    findings: tuple[Finding, ...]


def scan_part(part: Part) -> Scan:
    """Lists a part and sorts its members into images, class tars and strays.

    Raises:
        SourceReadError: the system could not read the file.
    """
    with RandomReader(part.path) as reader:
        return _Scanner(part, reader).run(list_members(reader, part.start, part.end))


class _Scanner:
    def __init__(self, part: Part, reader: RandomReader) -> None:
        self._part = part
        self._reader = reader
        self._class = parse_wnid(basename(part.container or part.path.replace("\\", "/")))
        self._columns: dict[str, list[tuple[int, int, int, int, int]]] = {}
        self._inner: list[Part] = []
        self._findings = Findings()

    def run(self, listing: TarListing) -> Scan:
        if listing.damage:
            self._findings.add("damaged-archive", f"{self._part.place}: {listing.damage.message}")
        elif not listing.has_end_marker:
            self._findings.add("no-end-marker", self._part.place)
        offsets, sizes = listing.offsets.tolist(), listing.sizes.tolist()
        for name, offset, size in zip(listing.names, offsets, sizes, strict=True):
            self._member(name, offset, size)
        for other in listing.others:
            if other.kind != "folder":
                kind = "link" if parse_image_name(basename(other.name)) else "special"
                self._note(kind, other.name, other.offset, other.kind)
        rows = {split: np.array(found, ROW) for split, found in self._columns.items()}
        return Scan(rows, tuple(self._inner), tuple(self._findings))

    def _note(self, kind: str, name: str, offset: int, why: str = "") -> None:
        place = f"{self._part.place}!{name} at byte {offset}"
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
        row = (label, image.number, 0, offset, size)
        self._columns.setdefault(image.split, []).append(row)

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
        elif lower.endswith(".tar") and self._class is None and (wnid := parse_wnid(base)):
            if wnid in label_of_wnid():
                self._inner.append(Part(self._part.path, name, offset, offset + size))
            else:
                self._note("unknown-class", name, offset)
        elif lower.endswith(_ARCHIVE_SUFFIXES):
            self._note("stray-archive", name, offset)
        elif lower.endswith(_IMAGE_SUFFIXES):
            self._note("misspelled-name", name, offset)
        elif self._reader.read_at(offset, 4).startswith(_IMAGE_MAGIC):
            self._note("stray-image", name, offset)
        else:
            self._note("junk", name, offset)
