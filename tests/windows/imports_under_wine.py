"""Makes imports under wine as cheap as they are on Windows; setup.sh installs it.

os.stat and the opening of a file ask for the volume's serial number, for which wine wakes two
other processes (0.75 ms, a few thousand times for TFDS). The import system needs neither: it is
given listings of the folders, which hold sizes and times, and reads by file descriptor. Only what
the set-up installed is found in this way; it does not change while a program runs. Everything else
that a program does, and every file of its own, is left as it is.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

nt: Any = importlib.import_module("nt")
bootstrap: Any = importlib.import_module("_frozen_importlib_external")

_INSTALLED = sys.prefix.rpartition("\\")[0].lower() + "\\"
_listings: dict[str, dict[str, Any]] = {}
_usual_stat = bootstrap._path_stat
_usual_get_data = bootstrap.FileLoader.get_data


def _stat(path: str) -> Any:
    folder, _, name = path.rpartition("\\")
    if not f"{folder}\\".lower().startswith(_INSTALLED):
        return _usual_stat(path)
    if folder not in _listings:
        with nt.scandir(folder) as entries:
            _listings[folder] = {entry.name.lower(): entry for entry in entries}
    entry = _listings[folder].get(name.lower())
    if entry is None:
        raise FileNotFoundError(path)
    return entry.stat()


def _get_data(loader: Any, path: str) -> bytes:
    if not path.lower().startswith(_INSTALLED):
        return bytes(_usual_get_data(loader, path))
    size = _stat(path).st_size
    file = nt.open(path, nt.O_RDONLY | nt.O_BINARY)
    try:
        pieces = []
        while piece := nt.read(file, size + 1):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        nt.close(file)


bootstrap._path_stat = _stat
bootstrap.FileLoader.get_data = _get_data
