"""Finds the archives: by their official names, else by what the tars in a folder hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename

from converter.errors import SourceError, SourceReadError, printable
from converter.imagenet import OFFICIAL_ARCHIVES, parse_image_name, parse_wnid
from converter.osal import RandomReader
from converter.sources.base import Part
from converter.sources.identify import identify, partial_downloads
from converter.sources.tar import list_members

_PEEKED_MEMBERS = 64


@dataclass(frozen=True)
class Found:
    """The archives that a conversion reads.

    Attributes:
        archives: the split that each was taken for, by absolute path.
        looked: the files and folders that were looked at, absolute.
    """

    archives: dict[str, str]
    looked: tuple[str, ...]

    @property
    def parts(self) -> list[Part]:
        """The archives as parts to scan, in the order of their paths."""
        return [Part(path) for path in sorted(self.archives)]


def manual_folder(out: Path) -> Path:
    """Returns where TFDS expects archives that were downloaded by hand."""
    return out / "downloads" / "manual"


def find_archives(source: Sequence[Path], out: Path, splits: Sequence[str] | None) -> Found:
    """Finds the archives of the wanted splits.

    Args:
        source: files and folders that the person named; none for the default places, which are
            TFDS's manual folder under `out`, then the current folder.
        out: the data_dir of the output.
        splits: the wanted splits, None for all that are there.

    Raises:
        SourceError: nothing was found, a named file is no ImageNet archive, or a folder holds
            several archives of one split and none has the official name.
    """
    places = [Path(place).absolute() for place in source]
    if not places:
        places = [manual_folder(out).absolute(), Path.cwd()]
    archives: dict[str, str] = {}
    for place in places:
        found = _look_at(place, named=bool(source))
        archives |= {path: split for path, split in found.items() if _wanted(split, splits)}
        if archives and not source:
            break
    looked = tuple(os.fspath(place) for place in places)
    if not archives:
        raise SourceError(_nothing_found(looked, splits))
    return Found(archives, looked)


def _wanted(split: str, splits: Sequence[str] | None) -> bool:
    return splits is None or split in splits


def _nothing_found(looked: Iterable[str], splits: Sequence[str] | None) -> str:
    names = [
        archive.name
        for archive in OFFICIAL_ARCHIVES
        if _wanted(archive.split, splits) and (splits or archive.split != "test")
    ]
    return (
        f"no ImageNet archive found in: {', '.join(printable(place) for place in looked)}. "
        f"Expected {' and '.join(names)}; name their folder with --source."
        + "".join(partial_downloads(Path(place)) for place in looked)
    )


def _look_at(place: Path, named: bool) -> dict[str, str]:
    if place.is_dir():
        return _look_in_folder(place)
    if place.exists():
        return {os.fspath(place): _split_of(place, "is no ImageNet 2012 archive")}
    if named:
        raise SourceError(f"--source {printable(str(place))} does not exist")
    return {}


def _look_in_folder(folder: Path) -> dict[str, str]:
    try:
        tars = sorted(p for p in folder.iterdir() if p.name.lower().endswith(".tar"))
    except OSError as error:
        raise SourceReadError(
            f"cannot look into {printable(str(folder))}: {error.strerror}"
        ) from error
    official = {tar.name: tar for tar in tars}
    chosen: dict[str, list[Path]] = {}
    for archive in OFFICIAL_ARCHIVES:
        if archive.name in official and archive.split not in chosen:
            path = official[archive.name]
            _split_of(path, "is not what its name says")
            chosen[archive.split] = [path]
    known = {archive.name for archive in OFFICIAL_ARCHIVES}
    missing: dict[str, list[Path]] = {}
    for tar in tars:
        if (
            tar.name not in known
            and (split := _split_held(_first_members(tar)))
            and split not in chosen
        ):
            missing.setdefault(split, []).append(tar)
    for split, paths in missing.items():
        if len(paths) > 1:
            names = ", ".join(printable(path.name) for path in paths)
            raise SourceError(
                f"{printable(str(folder))} holds several archives of the {split} split ({names}) "
                "and none has the official name: name the right one with --source"
            )
        chosen[split] = paths
    return {os.fspath(path): split for split, paths in chosen.items() for path in paths}


def _split_of(path: Path, otherwise: str) -> str:
    names = _first_members(path)
    split = _split_held(names)
    if split is None:
        raise SourceError(f"{printable(str(path))} {otherwise}: {identify(path, names)}.")
    return split


def _first_members(path: Path) -> list[str]:
    with RandomReader(path) as reader:
        return list_members(reader, limit=_PEEKED_MEMBERS).names


def _split_held(names: Sequence[str]) -> str | None:
    """Returns the split that the first members of a tar belong to, None where they show none."""
    for name in names:
        base = basename(name)
        if base.lower().endswith(".tar") and parse_wnid(base):
            return "train"
        if image := parse_image_name(base):
            return image.split
    return None
