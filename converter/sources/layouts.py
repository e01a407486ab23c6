"""The registry of layouts: how each kind of file is recognised, and each kind of part opened.

To add a layout, write a module with a recogniser and an `OpenPart`, and name both here; where its
images are no plain ranges of a file, add how one is read to `reading.py`, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from converter.sources import folder, stream_layout, tar_layout, zip_layout
from converter.sources.base import FOLDER, TAR, ZIP, OpenPart, Part, Recognised

_RECOGNISERS: Final[tuple[Callable[[Path], Recognised | str | None], ...]] = (
    stream_layout.recognise,
    zip_layout.recognise,
    tar_layout.recognise,
)
"""Asked in this order about a file: what it was taken for, why it cannot be, or None for "ask the
next". Folders are recognised by `find.py`, since what is taken depends on what lies side by side.
"""

_OPENERS: Final[dict[str, Callable[[Part], OpenPart]]] = {
    TAR: tar_layout.OpenTar,
    FOLDER: folder.OpenFolder,
    ZIP: zip_layout.OpenZip,
}


def recognise_file(path: Path) -> Recognised | str:
    """Says what a file was taken for, or why it is no source.

    Raises:
        SourceReadError: the file cannot be read.
    """
    for recognise in _RECOGNISERS:
        verdict = recognise(path)
        if verdict is not None:
            return verdict
    raise AssertionError("the last recogniser always answers")


def open_part(part: Part) -> OpenPart:
    """Opens a part to list it.

    Raises:
        SourceReadError: the system could not open the file.
    """
    return _OPENERS[part.kind](part)
