"""The Windows machine, and archives that are the same on both sides."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from converter import convert, pool
from converter.demo import DemoSize, make_archives
from converter.plan import ShardLimits
from tests.windows.machine import Machine

MIXED = DemoSize(
    images_per_class=1, validation=30, test=4, classes=240, width=48, height=32, mean_bytes=1500
)
"""With two CMYK images and the PNG that TFDS re-encodes."""
PLAIN = DemoSize(
    images_per_class=1, validation=40, test=4, classes=8, width=32, height=24, mean_bytes=1000
)
MANY = (3000, 6000)
"""Limits of a shard in bytes."""


@dataclass(frozen=True)
class Archives:
    """Archives, and what Linux makes of them.

    Attributes:
        folder: where they lie.
        sums: the SHA256SUMS of the dataset.
    """

    folder: Path
    sums: bytes

    @classmethod
    def make(cls, folder: Path, size: DemoSize, limits: ShardLimits | None = None) -> Archives:
        make_archives(folder / "archives", size, workers=2)
        pool.shut_down()
        report = convert(
            folder / "archives",
            folder / "out",
            workers=2,
            allow_incomplete=True,
            shard_limits=limits,
        )
        return cls(folder / "archives", Path(report.dataset_dir, "SHA256SUMS").read_bytes())


@pytest.fixture(scope="session")
def machine() -> Machine:
    if "IMAGENET_CONVERT_WINE_MACHINE" not in os.environ:
        pytest.skip("tests/windows/run.sh runs this")
    return Machine(Path(os.environ["IMAGENET_CONVERT_WINE_MACHINE"]))


@pytest.fixture(scope="session")
def mixed(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives.make(tmp_path_factory.mktemp("mixed"), MIXED)


@pytest.fixture(scope="session")
def plain(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives.make(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="session")
def many(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Archives of many shards, where the limits are small."""
    size = replace(PLAIN, validation=300)
    return Archives.make(tmp_path_factory.mktemp("many"), size, ShardLimits(*MANY))
