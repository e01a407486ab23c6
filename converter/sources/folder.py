"""The folder layout: images as files, class folders, class tars.

A folder is listed by one scandir with one stat per file. An image is found again by its folder
and its official name, so a class folder costs one `SourceFile`, not one per image; its time of
change stands in the place of an offset, so that a file which was rewritten is noticed.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from converter import osal
from converter.errors import SourceReadError, printable
from converter.imagenet import SPLITS, parse_image_name, parse_wnid
from converter.sources.base import (
    FOLDER,
    TAR,
    Damage,
    Listing,
    OpenPart,
    OtherMember,
    Part,
    Recognised,
    SourceFile,
)
from converter.sources.names import (
    ARCHIVE_SUFFIXES,
    is_class_tar,
    is_known_folder,
    is_patch,
    splits_named,
)

_SUFFIX: Final = ".JPEG"
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "lower": str.lower, "upper": str.upper}
_SHOWN: Final = 4


def spelling_of(canonical: str, actual: str) -> str | None:
    """Returns how a name differs from the official one, None where it does so oddly.

    Args:
        canonical: the official name.
        actual: the name of the file.

    Returns:
        Nothing for the official name, else the case of the stem and the suffix, such as `.jpg`,
        `lower.jpeg` or `upper.JPG`: `respelled` gives the actual name back.
    """
    if actual == canonical:
        return ""
    stem, dot, suffix = actual.rpartition(".")
    for case, change in _CASES.items():
        if change(canonical[: -len(_SUFFIX)]) == stem:
            return f"{case}{dot}{suffix}"
    return None


def respelled(canonical: str, spelling: str) -> str:
    """Returns the name of an image's file.

    Args:
        canonical: the official name.
        spelling: what `spelling_of` returned.
    """
    if not spelling:
        return canonical
    case, dot, suffix = spelling.partition(".")
    return _CASES[case](canonical[: -len(_SUFFIX)]) + dot + suffix


@dataclass
class Survey:
    """What the names in a folder are, without a look at any file.

    Attributes:
        images: names of images.
        class_folders: names of class folders.
        class_tars: names of class tars.
        known: other folders of ImageNet's usual trees.
        archives: other files that may be archives.
        others: how many other entries there are.
        shown: a few names of the others.
    """

    images: list[str] = field(default_factory=list)
    class_folders: list[str] = field(default_factory=list)
    class_tars: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)
    others: int = 0
    shown: list[str] = field(default_factory=list)

    @property
    def seen(self) -> str:
        """What is there besides, for a person."""
        if not self.others:
            return "nothing else" if self.known or self.archives else "it is empty"
        names = ", ".join(printable(name) for name in self.shown)
        return f"{self.others:,} other entries, such as {names}"


def survey(folder: Path) -> Survey:
    """Sorts a folder's entries by their names.

    Raises:
        SourceReadError: the folder cannot be looked into.
    """
    found = Survey()
    for entry in _entries(folder):
        name = entry.name
        if _is_folder(entry):
            kind = "class_folders" if parse_wnid(name) else "known"
            if kind == "known" and not is_known_folder(name):
                kind = "others"
        elif is_class_tar(name):
            kind = "class_tars"
        elif name.lower().endswith(ARCHIVE_SUFFIXES) and _is_file(entry):
            kind = "archives"
        else:
            kind = "images" if parse_image_name(name) else "others"
        if kind != "others":
            getattr(found, kind).append(name)
            continue
        found.others += 1
        if len(found.shown) < _SHOWN:
            found.shown.append(name)
    return found


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yields a folder's entries by name.

    Raises:
        SourceReadError: the folder cannot be looked into.
    """
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise SourceReadError(
            f"cannot look into {printable(str(folder))}: {error.strerror}; make it readable, or "
            "give another --source"
        ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def recognise(folder: Path, found: Survey) -> Recognised | str:
    """Says whether images, class folders or class tars lie in a folder under ImageNet's names.

    Class folders are believed once images are seen in one of them. Folders further down and
    archives are found on their own.

    Args:
        folder: the folder.
        found: its survey.

    Returns:
        What it was taken for, or why it was not.

    Raises:
        SourceReadError: a class folder cannot be looked into.
    """
    kinds, splits = [], set(splits_named(found.images))
    if found.images:
        kinds.append("images")
    if found.class_tars:
        kinds.append("class tars")
        splits.add("train")
    odd = ""
    for wnid in found.class_folders:
        if seen := _splits_inside(folder / wnid):
            kinds.append("class folders")
            splits.update(seen)
            break
        odd = odd or (
            f"no file in its class folder {printable(wnid)} is named as an image of ImageNet 2012"
        )
    if not kinds:
        return odd or f"nothing directly in it is named as in ImageNet 2012 ({found.seen})"
    ordered = tuple(split for split in SPLITS if split in splits)
    patch = ordered == ("test",) and is_patch(folder.name)
    part = Part(str(folder), kind=FOLDER, wnid=parse_wnid(folder.name), is_patch=patch)
    return Recognised(part, " and ".join(kinds), ordered, certain=not found.class_folders)


def _splits_inside(folder: Path, depth: int = 2) -> tuple[str, ...]:
    """Returns the splits of what lies in a class folder, or in one inside it."""
    found = survey(folder)
    if seen := splits_named([*found.images, *found.class_tars]):
        return seen
    below = found.class_folders if depth > 1 else []
    return next(filter(None, (_splits_inside(folder / name, depth - 1) for name in below)), ())


class OpenFolder(OpenPart):
    """A folder that is being listed; folders in it are parts of their own."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._files: dict[str, SourceFile] = {}

    def listing(self) -> Listing:
        names: list[str] = []
        offsets, sizes = array("q"), array("q")
        others: list[OtherMember] = []
        damage = None
        try:
            for entry in _entries(self._part.path):
                try:
                    status = osal.status_of(entry)
                except OSError as error:
                    kind = "a link that leads nowhere" if entry.is_symlink() else error.strerror
                    others.append(OtherMember(entry.name, str(kind), 0))
                    continue
                if stat.S_ISREG(status.st_mode):
                    names.append(entry.name)
                    offsets.append(status.st_mtime_ns)
                    sizes.append(status.st_size)
                else:
                    kind = "folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
                    others.append(OtherMember(entry.name, kind, 0))
        except SourceReadError as error:
            damage = Damage("unreadable", 0, str(error))
        return Listing(names, np.array(offsets), np.array(sizes), others, damage)

    def divided(self) -> Sequence[Part]:
        return ()

    def head(self, name: str, offset: int, size: int) -> bytes:
        path = os.path.join(self._part.path, name)
        try:
            with open(path, "rb") as file:
                return file.read(8)
        except OSError as error:
            raise SourceReadError(f"cannot read {printable(path)}: {error.strerror}") from error

    def located(self, name: str, canonical: str, offset: int, size: int) -> tuple[SourceFile, int]:
        spelling = spelling_of(canonical, name)
        if spelling is None:
            return SourceFile(os.path.join(self._part.path, name), size, offset), 0
        if spelling not in self._files:
            self._files[spelling] = SourceFile(self._part.path, 0, 0, FOLDER, spelling)
        return self._files[spelling], offset

    def inside(self, name: str, offset: int, size: int) -> Part | str:
        path = os.path.join(self._part.path, name)
        return Part(path, kind=TAR if is_class_tar(name) and not os.path.isdir(path) else FOLDER)

    def close(self) -> None:
        """Nothing is open."""
