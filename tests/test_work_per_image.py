"""What an image costs in calls, opens and copies: steady where times are not.

Each figure is the difference between a long and a short shard over the number of images between,
so that what a shard costs once does not count. `benchmarks/` measures the time.
"""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import numpy as np
import pytest

from converter import osal, shards
from converter.pictures import draw
from converter.scan import ROW
from converter.shards import ShardTask, write_shard
from converter.sources.base import SourceFile
from tests.system import WINDOWS

SHORT, LONG = 10, 60
IMAGE = draw("photograph", 1, seed=0, usual=(500, 375), mean_bytes=110_000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "images"
    path.write_bytes(IMAGE * LONG)
    return path


def shard(source: Path, images: int, validate: str) -> ShardTask:
    rows = np.zeros(images, ROW)
    rows["number"] = np.arange(1, images + 1)
    rows["offset"] = np.arange(images) * len(IMAGE)
    rows["size"] = len(IMAGE)
    files = (SourceFile.of(str(source)),)
    folder = str(source.parent)
    return ShardTask(folder, f"shard{images}", "train", files, rows, validate, "fail", os.getpid())


def per_image(cost: Callable[[ShardTask], float], source: Path, validate: str) -> float:
    tasks = [shard(source, images, validate) for images in (SHORT, LONG)]
    write_shard(tasks[0])  # what is imported and cached once
    short, long = (cost(task) for task in tasks)
    return (long - short) / (LONG - SHORT)


def calls(task: ShardTask) -> int:
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        write_shard(task)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("validate", "most"), [("off", 130), ("header", 190), ("decode", 250)])
def test_calls(source: Path, validate: str, most: int) -> None:
    found = per_image(calls, source, validate)
    assert most / 4 < found <= most


def system_calls(kind: str) -> Callable[[ShardTask], int]:
    def cost(task: ShardTask) -> int:
        before = counter(kind)
        write_shard(task)
        return counter(kind) - before

    return cost


def counter(kind: str) -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)[kind])


@pytest.mark.skipif(
    WINDOWS or not os.path.exists("/proc/self/io"), reason="the system does not count them"
)
def test_reads_and_writes(source: Path) -> None:
    assert per_image(system_calls("syscr"), source, "decode") == pytest.approx(1, abs=0.05)
    assert per_image(system_calls("syscw"), source, "decode") <= 2.1
    written = per_image(system_calls("wchar"), source, "decode")
    assert len(IMAGE) < written < len(IMAGE) + 200  # once, with its framing


def test_the_disk_may_begin_before_the_shard_ends(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def begin_writeback(fd: int, offset: int, size: int) -> None:
        assert os.fstat(fd).st_size == offset + size  # nothing is left in a buffer
        told.append((offset, size))

    monkeypatch.setattr(shards, "_WRITEBACK", 3 * len(IMAGE))
    monkeypatch.setattr(osal, "begin_writeback", begin_writeback)
    result = write_shard(shard(source, SHORT, "off"))
    assert len(told) == SHORT // 3
    assert told[0][0] == 0
    assert all(one[0] + one[1] == other[0] for one, other in itertools.pairwise(told))
    assert sum(size for _, size in told) <= result.size


opened: list[int] = []
"""The thread of each open; what ran before in this process may still have others."""
sys.addaudithook(lambda event, _: opened.append(get_ident()) if event == "open" else None)


def opens(task: ShardTask) -> int:
    opened.clear()
    write_shard(task)
    return opened.count(get_ident())


def test_no_file_is_opened_for_an_image(source: Path) -> None:
    assert per_image(opens, source, "decode") == 0
    assert 0 < opens(shard(source, SHORT, "decode")) < 8


@pytest.mark.parametrize(("validate", "copies"), [("off", 1.2), ("decode", 3.5)])
def test_copies_of_an_image_at_the_worst_moment(source: Path, validate: str, copies: float) -> None:
    task = shard(source, SHORT, validate)
    write_shard(task)
    tracemalloc.start()
    try:
        write_shard(task)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000 + copies * len(IMAGE)
