"""The tar layout: class tars in a tar, class folders in a tar, images in a tar, any prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from posixpath import basename
from typing import Final

from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS, parse_wnid
from converter.osal import RandomReader
from converter.sources.base import Listing, OpenPart, Part, Recognised, SourceFile
from converter.sources.identify import identify
from converter.sources.names import KAGGLE_FOLDER, is_class_tar, is_patch, splits_named
from converter.sources.tar import list_members

PEEKED_MEMBERS: Final = 64
"""How many members are looked at to recognise a tar."""


def recognise(path: Path) -> Recognised | str:
    """Says whether the first members of a tar are ImageNet's.

    Returns:
        What it was taken for, or what it is instead.

    Raises:
        SourceReadError: the file cannot be read.
    """
    with RandomReader(path) as reader:
        names = list_members(reader, limit=PEEKED_MEMBERS).names
    return recognise_names(names, Part(str(path)), path.name) or identify(path, names)


def recognise_names(names: Sequence[str], part: Part, file_name: str) -> Recognised | None:
    """Says what a tar is by its first members, None where they are not ImageNet's.

    Args:
        names: the members' names.
        part: the tar.
        file_name: what it is called, without a suffix that says how it is compressed.
    """
    splits = splits_named(names)
    part = replace(part, is_patch=splits == ("test",) and is_patch(file_name))
    if any(name.split("/")[0] == KAGGLE_FOLDER for name in names):
        return Recognised(part, "Kaggle's tree in a tar", SPLITS, certain=False)
    if not splits:
        return None
    if any(is_class_tar(basename(name)) for name in names):
        return Recognised(part, "class tars in a tar", splits, certain=True)
    certain = any(file_name == archive.name for archive in OFFICIAL_ARCHIVES)
    folders = any(parse_wnid(folder) for name in names for folder in name.split("/")[:-1])
    layout = "class folders in a tar" if folders else "images in a tar"
    return Recognised(part, layout, splits, certain)


class OpenTar(OpenPart):
    """A tar, or one that lies inside another file, that is being listed."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._reader = RandomReader(part.path)
        self._file = SourceFile(part.path, self._reader.size, self._reader.mtime_ns)

    def listing(self) -> Listing:
        return list_members(self._reader, self._part.start, self._part.end)

    def divided(self) -> Sequence[Part]:
        return ()

    def head(self, name: str, offset: int, size: int) -> bytes:
        return self._reader.read_at(offset, min(size, 8))

    def located(self, name: str, canonical: str, offset: int, size: int) -> tuple[SourceFile, int]:
        return self._file, offset

    def inside(self, name: str, offset: int, size: int) -> Part | str:
        return self._part.member(name, offset, size)

    def close(self) -> None:
        self._reader.close()
