"""What the system under the tests can do, and why a test is skipped where it cannot."""

from __future__ import annotations

import sys
from typing import Final, TypeVar

import pytest

Value = TypeVar("Value")

WINDOWS: Final = sys.platform == "win32"

KILLED: Final = 9 if WINDOWS else -9
"""The return code of a process that `os.kill(pid, 9)` ended."""


def not_on_windows(reason: str) -> pytest.MarkDecorator:
    """Skips a test whose means Windows does not have."""
    return pytest.mark.skipif(WINDOWS, reason=f"on Windows {reason}")


def fewer_on_windows(*values: Value, keep: int) -> tuple[Value, ...]:
    """Returns the values, on Windows only some: a start of Python with TFDS costs seconds there."""
    return values[:: max(1, len(values) // keep)][:keep] if WINDOWS else values
