"""Measures reading once against reading in place, and the pass over a pipe against `cat > file`.

    python benchmarks/staging.py WORK_DIR [--gigabytes 2]

Seeks: the same archive is converted in place and staged, in one process, while every read that
does not go on where the last one ended costs 8 ms, one at a time, as with the one arm of a disk.
What has been read once is in the system's memory and costs nothing.

Pipe: `cat ARCHIVE |` feeds the pass, and `cat > file` with an fsync, in turns; both end on the
disk. The best of three counts, since machines are busy at times.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from converter import convert, osal
from converter.demo import DemoSize, make_archives
from converter.progress import Progress
from converter.sources.stream_layout import standard_input
from converter.staging import Staging

SEEK_SECONDS = 0.008
ROUNDS = 3


class Arm:
    """Delays reads that are not where the last one ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._at: tuple[str, int] = ("", 0)
        self._known: dict[str, list[tuple[int, int]]] = {}
        self.seeks = 0

    def around(self, real: Callable[..., bytes]) -> Callable[..., bytes]:
        """Returns `RandomReader.read_at` with delays."""

        def read_at(reader: osal.RandomReader, offset: int, size: int) -> bytes:
            with self._lock:
                known = self._known.setdefault(reader.path, [])
                if not any(start <= offset and offset + size <= end for start, end in known[-8:]):
                    if self._at != (reader.path, offset):
                        self.seeks += 1
                        time.sleep(self._seconds)
                    if known and known[-1][1] == offset:
                        known[-1] = (known[-1][0], offset + size)
                    else:
                        known.append((offset, offset + size))
                    self._at = (reader.path, offset + size)
            return real(reader, offset, size)

        return read_at


@contextmanager
def one_process() -> Iterator[None]:
    """Runs all tasks here, so that there is one arm for all of them."""
    with (
        mock.patch("converter.pool.run", lambda run, tasks, workers: map(run, tasks)),
        mock.patch("converter.pool.start"),
    ):
        yield


def converted(archive: Path, out: Path, io: str) -> tuple[float, int, str]:
    """Converts; returns seconds, seeks and the shards' digests."""
    shutil.rmtree(out, ignore_errors=True)
    arm = Arm(SEEK_SECONDS)
    read_at = arm.around(osal.RandomReader.read_at)
    began = time.perf_counter()
    with one_process(), mock.patch.object(osal.RandomReader, "read_at", read_at):
        report = convert(archive, out, workers=1, splits=["train"], allow_incomplete=True, io=io)
    seconds = time.perf_counter() - began
    sums = Path(report.dataset_dir, "SHA256SUMS").read_text(encoding="ascii")
    shutil.rmtree(out)
    return seconds, arm.seeks, sums


def measure_seeks(archive: Path, work: Path) -> None:
    """Prints how much faster staging is where random reads are slow."""
    results = {io: converted(archive, work / "out", io) for io in ("staged", "direct")}
    assert results["staged"][2] == results["direct"][2]
    for io, (seconds, seeks, _) in results.items():
        print(f"{io:<7} {seconds:8.1f} s  {seeks:8,} seeks of {SEEK_SECONDS * 1000:.0f} ms")
    print(
        f"staged is {results['direct'][0] / results['staged'][0]:.1f} x as fast; equal SHA256SUMS"
    )


def pass_over_pipe(folder: str) -> None:
    """Stages standard input; prints the seconds from the first byte on."""
    began = time.perf_counter()
    staging = Staging.of(Path(folder), [standard_input("train")])
    Path(folder).mkdir()
    staging.bring_about(Path(folder), Progress())
    print(time.perf_counter() - began)


def piped(archive: Path, command: list[str]) -> str:
    """Runs a command with an archive on its standard input."""
    with subprocess.Popen(
        [shutil.which("cat") or "cat", str(archive)], stdout=subprocess.PIPE
    ) as cat:
        return subprocess.run(
            command, stdin=cat.stdout, stdout=subprocess.PIPE, text=True, check=True
        ).stdout


def measure_pipe(archive: Path, work: Path) -> None:
    """Prints the rate of the pass over a pipe as a share of that of `cat > file`."""
    target, folder, size = work / "copy", work / "staged", archive.stat().st_size

    def copy() -> float:
        began = time.perf_counter()
        piped(archive, ["sh", "-c", f'cat > "{target}" && sync "{target}"'])
        seconds = time.perf_counter() - began
        target.unlink()
        return seconds

    def stage() -> float:
        os.sync()
        text = piped(archive, [sys.executable, __file__, "--pass-over-pipe", str(folder)])
        shutil.rmtree(folder)
        return float(text)

    copied, staged = [], []
    for _ in range(ROUNDS):  # in turns, since the machine may be busier at one time than another
        os.sync()
        copied.append(copy())
        staged.append(stage())
    rates: dict[str, Any] = {
        name: size / 1e6 / min(times)
        for name, times in (("cat > file", copied), ("staging", staged))
    }
    for name, rate in rates.items():
        print(f"{name:<10} {rate:8,.0f} MB/s")
    print(f"the pass keeps {100 * rates['staging'] / rates['cat > file']:.0f} % of `cat > file`")


def main() -> None:
    """Runs the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, nargs="?", default=Path("staging-benchmark"))
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--only", choices=["pipe", "seeks"])
    parser.add_argument("--pass-over-pipe", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pass_over_pipe:
        pass_over_pipe(options.pass_over_pipe)
        return
    each = max(1, round(options.gigabytes * 1e9 / 110_000 / 1000))
    folder = options.work / f"archives-{each}"
    if not folder.exists():
        make_archives(folder, DemoSize(images_per_class=each, validation=1, test=0), workers=2)
    archive = folder / "ILSVRC2012_img_train.tar"
    print(f"{archive.stat().st_size / 1e9:.1f} GB, {each * 1000:,} images")
    if options.only != "seeks":
        measure_pipe(archive, options.work)
    if options.only != "pipe":
        measure_seeks(archive, options.work)


if __name__ == "__main__":
    main()
