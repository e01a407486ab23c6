"""Converts the ImageNet 2012 archives to the dataset that `tfds.load("imagenet2012")` finds.

from converter import convert

report = convert(source="Downloads", out="tensorflow_datasets", workers=8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from converter.conversion import convert
    from converter.errors import ConversionError
    from converter.report import Report

__all__ = ["ConversionError", "Report", "convert"]

_HOMES = {
    "convert": "converter.conversion",
    "ConversionError": "converter.errors",
    "Report": "converter.report",
}


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first used, so that `--help` stays quick."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
