"""What all layouts of the input share: parts to list, what a listing says, files to read from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

TAR: Final = "tar"
FOLDER: Final = "folder"
ZIP: Final = "zip"
STREAM: Final = "stream"
FILE: Final = "file"
STAGED: Final = "staged"
"""Kinds. A part is a tar, a folder, a zip or a stream (a tar that is read from start to end);
images are read from a file, a folder, a zip, or a staged file.
"""


ENDLESS: Final = 1 << 62
"""The size of a stream whose end has not been seen."""


@dataclass(frozen=True)
class SourceFile:
    """A file that images are read from, as it was when it was indexed, or a folder of them.

    Attributes:
        path: absolute path.
        size: length in bytes, 0 for a folder.
        mtime_ns: time of the last change in nanoseconds, 0 for a folder: each of its images
            has a time of its own, in the place of its offset, and other files do not matter.
        kind: `FILE` (an image is the bytes at its offset), `ZIP`, `FOLDER` or `STAGED`.
        spelling: how the images in a folder are named, see `folder.respelled`; the source that
            a staged file's images come from.
    """

    path: str
    size: int
    mtime_ns: int
    kind: str = FILE
    spelling: str = ""

    @classmethod
    def of(cls, path: str, kind: str = FILE) -> SourceFile:
        """Describes a file as it is now.

        Raises:
            OSError: the file is gone or may not be looked at.
        """
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns, kind)


@dataclass(frozen=True)
class Part:
    """A folder, an archive, or a range of a file that holds one.

    Attributes:
        path: the folder or file.
        container: names of the archives around it in the file, such as `n01440764.tar`.
        start: first byte of the range.
        end: byte after the range, None for the end of the file.
        kind: `TAR`, `ZIP` (its range is one of the zip's directory), `FOLDER` or `STREAM`.
        wnid: the class that it belongs to because of what it lies in, if any.
        is_patch: whether its images replace those of the same name elsewhere.
    """

    path: str
    container: str = ""
    start: int = 0
    end: int | None = None
    kind: str = TAR
    wnid: str | None = None
    is_patch: bool = False

    @property
    def place(self) -> str:
        """How messages name it: `path` or `path!container`."""
        return f"{self.path}!{self.container}" if self.container else self.path

    def member(self, name: str, offset: int, size: int) -> Part:
        """Returns the tar that is a member of this one."""
        container = f"{self.container}!{name}" if self.container else name
        return Part(self.path, container, offset, offset + size, self.kind)


@dataclass(frozen=True, slots=True)
class Damage:
    """Why what follows in an archive cannot be trusted.

    Attributes:
        kind: what happened, such as truncated, hole, bad-header, not-tar, unsupported or
            unreadable.
        offset: where in the file, in bytes from its start.
        message: what, after which member, and how much of the archive was readable; ASCII.
    """

    kind: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class OtherMember:
    """A member that is no regular file.

    Attributes:
        name: as the archive spells it.
        kind: symlink, hardlink, folder, device, fifo, sparse, volume label or `unknown type X`.
        offset: where its header begins in the file.
    """

    name: str
    kind: str
    offset: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What a part holds, up to the first damage.

    Attributes:
        names: the regular files, in the archive's order and spelling; bytes that are not UTF-8
            as surrogate escapes.
        offsets: where to find each: where its bytes begin in the file for a tar, where its
            header does for a zip, when it changed last (in nanoseconds) for a folder.
        sizes: length of each in bytes.
        others: members of other kinds.
        damage: why what follows cannot be trusted, or None.
        has_end_marker: whether a tar ends with two zero blocks, as it should.
    """

    names: Sequence[str]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    others: Sequence[OtherMember] = ()
    damage: Damage | None = None
    has_end_marker: bool = True


@dataclass(frozen=True)
class Recognised:
    """A source and what it was taken for.

    Attributes:
        part: what is to be scanned.
        layout: how it is laid out, for a person.
        splits: those that its names were seen to belong to.
        certain: whether it can hold no others; a source that might is never left aside.
    """

    part: Part
    layout: str
    splits: tuple[str, ...]
    certain: bool

    def __str__(self) -> str:
        return f"{self.layout} ({', '.join(self.splits)})"


class MemberReader(Protocol):
    """What an archive is read from: a file at any offset, or a stream that only goes forward."""

    @property
    def size(self) -> int:
        """Length in bytes; `ENDLESS` for a stream whose end has not been seen."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Returns `size` bytes from `offset`, fewer only at the end."""

    def skip_to(self, offset: int) -> None:
        """Goes on to an offset, so that a stream shows whether it reaches that far."""


class OpenPart(Protocol):
    """A part that is being listed; each layout has its own."""

    def listing(self) -> Listing:
        """Lists what it holds."""

    def divided(self) -> Sequence[Part]:
        """Returns parts to list in place of this one, nothing where it is small enough."""

    def head(self, name: str, offset: int, size: int) -> bytes:
        """Returns the first bytes of a member, at least four where it has them."""

    def located(self, name: str, canonical: str, offset: int, size: int) -> tuple[SourceFile, int]:
        """Returns which file an image is read from, and the offset to find it by.

        Args:
            name: as the listing spells it.
            canonical: the official base name.
            offset: as in the listing.
            size: as in the listing.
        """

    def inside(self, name: str, offset: int, size: int) -> Part | str:
        """Returns the archive or folder that a member is, or why it cannot be looked into."""

    def close(self) -> None:
        """Closes what is open."""
