"""Which system this is; asked within this package only."""

from __future__ import annotations

import os
import sys
from typing import Final

WINDOWS: Final = sys.platform == "win32"
PLAIN: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags of `os.open`: every byte as it is, and not for programs that are started."""
