"""What makes two runs the same conversion, and in what one differs from another, in words."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from converter import osal
from converter.errors import printable
from converter.index import Index
from converter.plan import ShardLimits
from converter.sources.base import STAGED, SourceFile

Identity = dict[str, Any]
"""What decides the bytes of the shards, as the journal keeps it."""


def identity_of(
    index: Index, limits: ShardLimits, versions: Mapping[str, str], staged: Any = None
) -> Identity:
    """Returns the identity of a conversion.

    Args:
        index: the index of the archives, before any image is converted.
        limits: bounds on the size of shards.
        versions: by package.
        staged: what identifies the sources that are staged, None where none is.
    """
    files = [file for file in index.files if file.kind != STAGED]
    identity = {
        "source": [[os.path.basename(f.path), f.size, f.mtime_ns] for f in files],
        "index": {split: index.digest(split) for split in index.splits},
        "shard limits": asdict(limits),
        "version": {name: versions[name] for name in ("imagenet-convert", "tensorflow-datasets")},
    }
    return identity if staged is None else {"staged sources": staged, **identity}


def difference(found: Identity, wanted: Identity, files: Sequence[SourceFile]) -> str:
    """Returns in what a conversion differs from the one that was begun, nothing if in nothing.

    Args:
        found: the identity of the one that was begun.
        wanted: that of this one.
        files: the archives of this one.
    """
    field = next((name for name in wanted if found.get(name) != wanted[name]), None)
    if field is None:
        return ""
    was, now = found.get(field), wanted[field]
    then, chosen = list(found.get("index", ())), list(wanted["index"])
    if then != chosen:
        return (
            f"another choice of splits ({', '.join(then)}; now {', '.join(chosen)}). Give the "
            "same archives and --splits as before"
        )
    if field == "source" and isinstance(was, list):
        return f"another source:\n{_changed_files(was, files)}\nGive the archives as they were"
    if isinstance(was, dict) and field in ("version", "shard limits"):
        told = [f"{key} {was.get(key)}, now {now[key]}" for key in now if was.get(key) != now[key]]
        return f"another {field} ({printable('; '.join(told))}). Run it as before"
    if field == "index":
        return (
            "another set of images (some were added, removed or rewritten). Give them as they were"
        )
    return f"another {field} (they are read in another way now). Run it as before"


def _changed_files(was: Sequence[Sequence[Any]], files: Sequence[SourceFile]) -> str:
    before = {str(name): (size, mtime_ns) for name, size, mtime_ns in was}
    lines = []
    for file in files:
        if file.kind == STAGED:
            continue
        name = os.path.basename(file.path)
        size, mtime_ns = before.pop(name, (None, None))
        shown = printable(name)
        if size is None:
            lines.append(f"{shown}: was not among the archives")
        elif size != file.size:
            lines.append(f"{shown}: {file.size:,} bytes, was {size:,}")
        elif mtime_ns != file.mtime_ns:
            now, then = _moment(file.mtime_ns), _moment(mtime_ns)
            lines += [
                f"{shown}: modified {now}, was {then}; {file.size:,} bytes as before.",
                "If it is a copy with the same bytes, give it the time that it had:",
                f"    {osal.set_time_command(printable(file.path), mtime_ns)}",
            ]
    lines += [f"{printable(name)}: is not among the archives any more" for name in before]
    return "\n".join(f"    {line}" for line in lines)


def _moment(mtime_ns: int) -> str:
    """Returns a time to the microsecond: copies made in one script may differ by no more."""
    try:
        whole = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(mtime_ns // 10**9))
    except (OverflowError, ValueError, OSError):
        return f"{mtime_ns} ns after 1970"
    return f"{whole}.{mtime_ns % 10**9 // 1000:06d} UTC"
