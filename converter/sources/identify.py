"""Says what a file is that is not the archive it was taken for."""

from __future__ import annotations

from pathlib import Path

from converter.osal import RandomReader


def identify(path: Path) -> str:
    """Returns a phrase that names the file's kind and what to do about it.

    Raises:
        SourceReadError: the file cannot be read.
    """
    with RandomReader(path) as reader:
        head = reader.read_at(0, 512)
    if not head:
        return "the file is empty"
    if head.lstrip()[:1] == b"<":
        return "it is a web page, most likely an error page that was saved in its place"
    return "it is no tar with ImageNet's members"
