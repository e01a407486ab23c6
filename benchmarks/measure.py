"""Runs one whole process and notes what it took: time, CPU, memory, bytes written."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_MEMORY_EVERY_SECONDS = 1.0  # counting shared pages takes time from what is measured
_FOLDER_EVERY_SECONDS = 2.0


@dataclass(frozen=True)
class Measurement:
    """What a process and its children took.

    Attributes:
        seconds: wall time from start to exit.
        cpu_seconds: user and system time.
        peak_memory: bytes of all processes together at the worst moment, shared pages once.
        written: bytes handed to the system for writing, None where it does not tell.
        temporary: bytes in the watched folder at the worst moment, above those left at the end.
        output: what it printed to stdout.
    """

    seconds: float
    cpu_seconds: float
    peak_memory: int
    written: int | None
    temporary: int
    output: str


class Failed(Exception):
    """A measured process did not end well."""


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Measurement:
    """Runs a command to its end.

    Args:
        command: program and arguments.
        folder: the folder that it writes to, watched for temporary files.
        environment: variables to set besides those of this process.

    Raises:
        Failed: it exits with another code than 0.
    """
    before = os.times()
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = _Watch(psutil.Process(process.pid), folder)
    output, errors = process.communicate()
    seconds = time.perf_counter() - began
    after = os.times()
    watch.stop()
    if process.returncode:
        raise Failed(f"{' '.join(command)} exited with {process.returncode}:\n{errors[-3000:]}")
    cpu = after.children_user + after.children_system
    return Measurement(
        seconds=seconds,
        cpu_seconds=cpu - before.children_user - before.children_system,
        peak_memory=watch.peak_memory,
        written=watch.written,
        temporary=max(0, watch.peak_folder - _size(folder)),
        output=output,
    )


class _Watch:
    """Samples a process tree from a thread."""

    def __init__(self, process: psutil.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self.written: int | None = None
        self._stopped = threading.Event()
        self.peak_memory = self.peak_folder = 0
        self._threads = [
            threading.Thread(target=self._sample, args=(look, pause), daemon=True)
            for look, pause in (
                (self._look_at_processes, _MEMORY_EVERY_SECONDS),
                (self._look_at_folder, _FOLDER_EVERY_SECONDS),
            )
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _sample(self, look: Callable[[], None], pause: float) -> None:
        while not self._stopped.is_set():
            look()
            self._stopped.wait(pause)

    def _look_at_processes(self) -> None:
        total, written = 0, None
        try:
            tree = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return
        for process in tree:
            try:
                memory = process.memory_full_info()
                total += getattr(memory, "pss", None) or memory.rss
                if hasattr(process, "io_counters"):
                    counters = process.io_counters()
                    # What a process wrote that has ended counts as its parent's from then on.
                    written = (written or 0) + getattr(
                        counters, "write_chars", counters.write_bytes
                    )
            except psutil.Error:
                continue
        self.peak_memory = max(self.peak_memory, total)
        if written is not None:
            self.written = max(self.written or 0, written)

    def _look_at_folder(self) -> None:
        self.peak_folder = max(self.peak_folder, _size(self._folder))


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total
