"""Says what a file is that is not the archive it was taken for, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from converter.errors import printable
from converter.imagenet import OFFICIAL_ARCHIVES
from converter.osal import RandomReader

_HEAD: Final = 64 << 10
_MAGIC: Final = (
    (b"\x1f\x8b", "it is compressed with gzip", "unpack it first: gunzip"),
    (b"BZh", "it is compressed with bzip2", "unpack it first: bunzip2"),
    (b"\xfd7zXZ\0", "it is compressed with xz", "unpack it first: unxz"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd", "unpack it first: unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7-Zip file", "unpack it first, and give the folder"),
    (b"\xff\xd8\xff", "it is a single JPEG image", "give the tar that holds the images"),
)
_PARTIAL_SUFFIXES: Final = (
    ".part",
    ".crdownload",
    ".aria2",
    ".download",
    ".tmp",
    ".!qB",
    ".filepart",
)
_DOWNLOAD_AGAIN: Final = "download it again while logged in at image-net.org"


def identify(path: Path, names: Sequence[str] = ()) -> str:
    """Returns a phrase that names the file's kind and what to do about it.

    Args:
        path: the file.
        names: the first members, where it is a tar.

    Raises:
        SourceReadError: the file cannot be read.
    """
    with RandomReader(path) as reader:
        head, size = reader.read_at(0, _HEAD), reader.size
    return with_state(path, size, _kind(head, names))


def with_state(path: Path, size: int, what: str) -> str:
    """Returns the phrase, and how much of an official archive is there where that explains it.

    Args:
        path: the file.
        size: its length in bytes.
        what: what kind of file it is.
    """
    state = download_state(path, size)
    return f"{what}. {state}" if state else what


def _kind(head: bytes, names: Sequence[str]) -> str:
    if not head:
        return f"the file is empty; {_DOWNLOAD_AGAIN}"
    for magic, kind, remedy in _MAGIC:
        if head.startswith(magic):
            return f"{kind}; {remedy}"
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return f"it is a web page saved in its place, often a log-in page; {_DOWNLOAD_AGAIN}"
    if not any(head):
        return (
            "it begins with zeros, as the rest of a download for which the room was reserved; "
            f"{_DOWNLOAD_AGAIN}"
        )
    if any("devkit" in name for name in names):
        return "it is a development kit without images; give the image archives"
    if any(name.endswith(".xml") for name in names):
        return "it holds bounding boxes, no images; give the image archives"
    if names:
        return f"a tar whose members (such as {printable(names[0])}) are not those of ImageNet 2012"
    return "it is no tar"


def download_state(path: Path, size: int) -> str:
    """Returns how much of an official archive is there, nothing where it may be all.

    Args:
        path: the archive.
        size: its length in bytes.
    """
    state = ""
    for archive in OFFICIAL_ARCHIVES:
        if path.name == archive.name and archive.size and size < archive.size:
            state = (
                f"{printable(str(path))} has {size:,} bytes, the official {archive.name} "
                f"{archive.size:,} ({100 * size / archive.size:.1f} %)"
            )
    if path.with_name(path.name + ".aria2").exists():
        state += f"{'; ' if state else ''}{printable(path.name)}.aria2 says its download goes on"
    return state


def partial_downloads(folder: Path) -> str:
    """Returns a sentence on unfinished downloads of the archives in a folder, or nothing."""
    found = []
    for archive in OFFICIAL_ARCHIVES:
        for suffix in _PARTIAL_SUFFIXES:
            path = folder / (archive.name + suffix)
            if not path.is_file():
                continue
            size = path.stat().st_size
            share = f", {100 * size / archive.size:.1f} %" if archive.size else ""
            found.append(f"{printable(path.name)} ({size:,} bytes{share})")
    if not found:
        return ""
    return f" There are unfinished downloads: {', '.join(found)}. Let them finish, then run again."
