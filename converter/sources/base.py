"""What every layout of the input yields: parts that can be listed on their own."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceFile:
    """A file that images are read from, as it was when it was indexed.

    Attributes:
        path: absolute path.
        size: length in bytes.
        mtime_ns: time of the last change in nanoseconds.
    """

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> SourceFile:
        """Describes a file.

        Raises:
            OSError: the file is gone or may not be looked at.
        """
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Part:
    """A range of a file that holds one archive.

    Attributes:
        path: the file.
        container: names around it, outermost first: `n01440764.tar`, or nothing.
        start: first byte of the range.
        end: byte after the range, None for the end of the file.
    """

    path: str
    container: str = ""
    start: int = 0
    end: int | None = None

    @property
    def place(self) -> str:
        """How messages name it: `path` or `path!container`."""
        return f"{self.path}!{self.container}" if self.container else self.path
