"""Paths that Windows would take for something else, or not at all."""

from __future__ import annotations

import ntpath
import re

from converter.errors import printable
from converter.osal.system import WINDOWS

MOST_CHARACTERS = 259
"""Of a path on Windows, unless long paths are enabled."""
_DEVICES = re.compile(
    r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)
_LITERAL = "\\\\?\\"
"""Begins a path that Windows takes as it stands."""


def name_refusal(path: str) -> str:
    """Returns why this system cannot have a file or folder of that path, nothing where it can.

    Windows opens a device for `NUL` in any folder, and drops a dot or space from the end of a
    name without a word.

    Args:
        path: as the person typed it; it need not exist.
    """
    if not WINDOWS or path.startswith(_LITERAL):
        return ""
    for name in re.split(r"[\\/]", ntpath.splitdrive(path)[1]):
        if '"' in name:
            return (
                f"{printable(path)} holds a quote: in cmd and PowerShell a backslash before the "
                "closing quote makes the quote part of the path. Leave that backslash away."
            )
        if odd := next((ch for ch in name if ch in "<>:|?*" or ch < " "), ""):
            return (
                f"{printable(path)}: Windows has no names with {printable(odd)} in them. "
                "Choose another name."
            )
        if name.strip(".") and name != name.rstrip(". "):
            return (
                f"{printable(path)}: Windows drops the {'dot' if name[-1] == '.' else 'space'} at "
                f"the end of the name '{printable(name)}'. Leave it away."
            )
        if _DEVICES.fullmatch(name.split(".")[0].rstrip()):
            return (
                f"{printable(path)}: '{printable(name)}' is the name of a device on Windows. "
                "Choose another name."
            )
    return ""


def length_refusal(path: str) -> str:
    """Returns why a file of that path cannot be made for its length, nothing where it can.

    Args:
        path: absolute; the longest that will be needed.
    """
    if not WINDOWS or len(path) <= MOST_CHARACTERS or path.startswith(_LITERAL) or _any_length():
        return ""
    return (
        f"the path {printable(path)} would have {len(path)} characters, and this Windows takes "
        f"{MOST_CHARACTERS}. Choose a shorter folder, or enable long paths: set LongPathsEnabled "
        r"to 1 in the registry under HKLM\SYSTEM\CurrentControlSet\Control\FileSystem, as "
        "administrator."
    )


def _any_length() -> bool:
    """Returns whether long paths are enabled, for this program as well (Python says that it is)."""
    import ctypes

    try:
        asked = getattr(ctypes, "windll").ntdll.RtlAreLongPathsEnabled  # noqa: B009
    except AttributeError:  # of Windows before 2016, which has no such setting
        return False
    asked.restype = ctypes.c_ubyte
    return bool(asked())
