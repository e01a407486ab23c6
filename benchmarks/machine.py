"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("tensorflow", "tensorflow-datasets", "pillow", "joblib", "numpy", "google-crc32c")


def describe_machine() -> dict[str, Any]:
    """Returns processor, memory, system and versions."""
    return {
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def file_system(folder: Path) -> str:
    """Returns the type of the file system that a folder lies on."""
    place = os.path.realpath(folder)
    mounts = [part for part in psutil.disk_partitions(all=True) if _holds(part.mountpoint, place)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def _holds(mount: str, place: str) -> bool:
    return place == mount or place.startswith(mount.rstrip(os.sep) + os.sep)


def drop_caches() -> bool:
    """Empties the page cache; returns whether that was allowed."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    except (AttributeError, OSError):
        return False
    return True


def warm(paths: tuple[Path, ...]) -> None:
    """Reads files so that they are in the page cache."""
    for path in paths:
        with open(path, "rb") as file:
            while file.read(8 << 20):
                continue
