"""Keeps free memory from being handed to the host of a virtual machine while something is measured.

There, whoever writes next pays for getting it back: a copy of 2 GB took 1.2 s or 7 s. A balloon
holds what is free and gives it up, a little ahead, as others take it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import psutil

_FREE: Final = 1 << 30
"""Bytes that are left free; about what such a machine leaves alone."""
_CHUNK: Final = 64 << 20
_POLL_SECONDS: Final = 0.01


class Balloon:
    """Holds free memory until it is closed."""

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Gives everything up."""
        self._stop.set()
        self._thread.join()
        self._chunks.clear()

    def inflate(self) -> None:
        """Takes what has become free; what caches hold stays there."""
        with self._lock:
            while psutil.virtual_memory().free > _FREE + _CHUNK:
                self._chunks.append(np.ones(_CHUNK // 8))

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            with self._lock:
                while self._chunks and psutil.virtual_memory().free < _FREE:
                    self._chunks.pop()
