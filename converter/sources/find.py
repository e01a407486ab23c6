"""Finds the sources: what was named, else what has an official name in the default places.

Nothing is taken on a guess. In a folder that was named, images, class folders and class tars under
ImageNet's names count, archives by what they hold, and folders of ImageNet's usual trees are
looked into. Where a split lies there in several ways, the official archive is used; without one
the person has to say which. What is named in so many words is joined.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from converter.errors import SourceError, SourceReadError, printable
from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS
from converter.sources import folder as folders
from converter.sources.base import Part, Recognised
from converter.sources.folder import Survey, survey
from converter.sources.identify import partial_downloads
from converter.sources.layouts import recognise_file
from converter.sources.names import OFFICIAL_NAMES, is_official
from converter.sources.stream import STDIN
from converter.sources.stream_layout import A_PIPE, standard_input


@dataclass(frozen=True)
class Verdict:
    """What became of a file or folder that was looked at.

    Attributes:
        path: absolute path.
        source: what it was taken for, None where it is not used.
        why: why it is not used.
        wrong: whether that is an error, since it was named or has an official name.
    """

    path: str
    source: Recognised | None
    why: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.source or f'not used, {self.why}'}")


@dataclass(frozen=True)
class Found:
    """What a conversion reads.

    Attributes:
        sources: what was taken, each for what.
        verdicts: all that was looked at.
    """

    sources: tuple[Recognised, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def parts(self) -> list[Part]:
        """The sources as parts to scan, in the order of their paths."""
        return sorted((source.part for source in self.sources), key=lambda part: part.path)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were seen."""
        seen = {split for source in self.sources for split in source.splits}
        return tuple(split for split in SPLITS if split in seen)


def manual_folder(out: Path) -> Path:
    """Returns where TFDS expects archives that were downloaded by hand."""
    return out / "downloads" / "manual"


def find_sources(
    source: Sequence[Path],
    out: Path,
    splits: Sequence[str] | None,
    named: Sequence[tuple[str, str]] = (),
) -> Found:
    """Finds what holds the images of the wanted splits.

    Args:
        source: files and folders that the person named; none for the default places, which are
            TFDS's manual folder under `out`, then the current folder.
        out: the data_dir of the output.
        splits: the wanted splits, None for all that are there.
        named: splits, and the file, folder or `STDIN` that was named for each.

    Raises:
        SourceError: nothing was found, what was named is not ImageNet's, or a folder holds a
            split several times and no official archive of it.
    """
    if source or named:
        places = [Path(place).absolute() for place in source]
        verdicts = [verdict for place in places for verdict in _named(place)]
        for split, path in named:
            verdicts += _named_for(split, path)
        if wrong := [verdict.why for verdict in verdicts if verdict.wrong]:
            raise SourceError("\n".join([*wrong, *_taken_lines(verdicts)]))
    else:
        manual = manual_folder(out).absolute()
        places, verdicts = [manual, Path.cwd()], _default(manual, archives_by_content=True)
        if not _sources(verdicts, splits):
            verdicts += _default(Path.cwd(), archives_by_content=False)
    sources = _sources(verdicts, splits)
    if not sources:
        raise SourceError(_nothing_found(places, splits, verdicts))
    return Found(tuple(sources), tuple(verdicts))


def _sources(verdicts: Iterable[Verdict], splits: Sequence[str] | None) -> list[Recognised]:
    found: dict[str, Recognised] = {}
    for verdict in verdicts:
        source = verdict.source
        if source and (
            splits is None or not source.certain or any(s in splits for s in source.splits)
        ):
            found.setdefault(source.part.path, source)
    return list(found.values())


def _taken_lines(verdicts: Iterable[Verdict]) -> list[str]:
    return [f"Taken: {verdict}" for verdict in verdicts if verdict.source]


def _nothing_found(
    places: Sequence[Path], splits: Sequence[str] | None, verdicts: Sequence[Verdict]
) -> str:
    names = [
        archive.name
        for archive in OFFICIAL_ARCHIVES
        if (splits is None or archive.split in splits) and (splits or archive.split != "test")
    ]
    seen = "".join(f"\n    {verdict}" for verdict in verdicts)
    return (
        f"no ImageNet archive found in: {', '.join(printable(str(place)) for place in places)}. "
        f"Expected {' and '.join(names)}, or images or class folders under ImageNet's names; name "
        "what holds them with --source."
        + "".join(partial_downloads(place) for place in places)
        + (f"\nLooked at:{seen}" if seen else "")
    )


def _named(place: Path) -> list[Verdict]:
    try:
        place.stat()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise SourceError(f"--source {printable(str(place))} does not exist") from None
        raise SourceReadError(
            f"--source {printable(str(place))} cannot be looked at: {error.strerror}"
        ) from error
    if place.is_dir():
        verdicts = _look_into(place, survey(place), set(), take_own=True)
        if not any(verdict.source or verdict.wrong for verdict in verdicts):
            why = _nothing_found([place], None, verdicts)
            verdicts.append(Verdict(str(place), None, why, wrong=True))
        return verdicts
    return [_judged(place, "is no ImageNet 2012 archive", wrong=True)]


def _named_for(split: str, path: str) -> list[Verdict]:
    """Looks at what was named for one split."""
    if path == STDIN:
        return [Verdict(path, standard_input(split))]
    verdicts = _named(Path(path))
    pipes = [v.source for v in verdicts if v.source and v.source.layout == A_PIPE]
    if pipes:
        return [Verdict(path, replace(pipes[0], splits=(split,), certain=True))]
    seen = {held for verdict in verdicts if verdict.source for held in verdict.source.splits}
    if seen and split not in seen:
        why = (
            f"{printable(path)} was named for the {split} split and holds "
            f"{' and '.join(sorted(seen))}; name it with the option of its split, or --source"
        )
        verdicts.append(Verdict(path, None, why, wrong=True))
    return verdicts


def _default(place: Path, archives_by_content: bool) -> list[Verdict]:
    """Looks at a place that nobody named: only official names and Kaggle's count."""
    if not place.is_dir():
        return []
    found = survey(place)
    if not archives_by_content:
        found.archives = [name for name in found.archives if is_official(name)]
    found.known = [name for name in found.known if is_official(name)]
    verdicts = _look_into(place, found, set(), take_own=False)
    if wrong := [verdict.why for verdict in verdicts if verdict.wrong]:
        raise SourceError("\n".join(wrong))
    return verdicts


def _judged(path: Path, otherwise: str, wrong: bool) -> Verdict:
    found = recognise_file(path)
    if isinstance(found, Recognised):
        return Verdict(str(path), found)
    why = f"{printable(str(path))} {otherwise}: {found}." if wrong else found
    return Verdict(str(path), None, why, wrong)


def _look_into(folder: Path, found: Survey, seen: set[str], take_own: bool) -> list[Verdict]:
    """Looks at what lies in a folder, and in the folders of ImageNet's usual trees below it.

    Args:
        folder: the folder.
        found: its survey.
        seen: real paths of the folders above, since links may lead back.
        take_own: whether images, class folders and class tars that lie in it count.

    Returns:
        A verdict for the folder, where it is used, nothing in it is, or others lie in it, and
        verdicts for what is in it.
    """
    seen.add(os.path.realpath(folder))
    verdicts = []
    own = folders.recognise(folder, found) if take_own else "no official name is in it"
    if isinstance(own, Recognised):
        verdicts.append(Verdict(str(folder), own))
    for name in found.known:
        if os.path.realpath(folder / name) not in seen:
            below = folder / name
            verdicts += _look_into(below, survey(below), seen, take_own=True)
    preferred = _preferred(found.archives)
    for name in found.archives:
        if name in OFFICIAL_NAMES and name not in preferred:
            verdicts.append(Verdict(str(folder / name), None, "a newer one of its split is here"))
        else:
            wrong = name in preferred
            verdicts.append(_judged(folder / name, "is not what its name says", wrong))
    verdicts = _settled(folder, verdicts, preferred)
    used = any(verdict.source or verdict.wrong for verdict in verdicts)
    if isinstance(own, str) and (not used or (take_own and (found.others or found.class_folders))):
        verdicts.append(Verdict(str(folder), None, own))
    return verdicts


def _preferred(names: Sequence[str]) -> list[str]:
    """Returns the official archive to use of each split."""
    chosen: dict[str, str] = {}
    for archive in OFFICIAL_ARCHIVES:
        if archive.name in names:
            chosen.setdefault(archive.split, archive.name)
    return list(chosen.values())


def _settled(folder: Path, verdicts: list[Verdict], preferred: Sequence[str]) -> list[Verdict]:
    """Sets aside what the official archives of a folder make needless.

    Raises:
        SourceError: a split lies there several times, and which one is meant is not clear.
    """
    official = {str(folder / name) for name in preferred}
    held = {s for v in verdicts if v.source and v.path in official for s in v.source.splits}
    settled = []
    for verdict in verdicts:
        source = verdict.source
        needless = source and verdict.path not in official and held.issuperset(source.splits)
        if source and needless and not source.part.is_patch:
            why = f"since the official archive of its split is beside it: {source}"
            verdict = Verdict(verdict.path, None, why)
        settled.append(verdict)
    for split in SPLITS:
        several = [
            os.path.relpath(verdict.path, folder)
            for verdict in settled
            if (source := verdict.source) and split in source.splits and not source.part.is_patch
        ]
        if len(several) > 1:
            raise SourceError(
                f"{printable(str(folder))} holds several archives or folders of the {split} split "
                f"({', '.join(map(printable, several))}) and none has the official name: name the "
                "right one with --source (named one by one, several are joined)"
            )
    return settled
