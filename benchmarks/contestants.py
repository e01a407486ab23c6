"""Who is measured: a command line each, on the same archives."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converter import pool
from converter.demo import DemoSize, make_archives
from converter.imagenet import EXPECTED_SPLITS
from converter.indexing import make_index
from converter.progress import Progress
from converter.published import REPORT_NAME
from converter.sources.find import find_sources
from converter.work import file_sha256

HERE = Path(__file__).parent
TFDS, DECODE_LIMIT, COPY_LIMIT = "TFDS", "decode limit", "copy limit"


@dataclass(frozen=True)
class Material:
    """The archives, and what is known of them beforehand.

    Attributes:
        archives: the folder that holds them.
        paths: the archives.
        images: the number of images.
        size: the sum of the images' lengths in bytes.
        places: a file that says where each image lies, for the decode limit.
        digests: a file with the sha256 of each archive, for `--validate digest`.
    """

    archives: Path
    paths: tuple[Path, ...]
    images: int
    size: int
    places: Path
    digests: Path


@dataclass(frozen=True)
class Contestant:
    """One way to do it.

    Attributes:
        name: what the table calls it.
        workers: processes.
        command: the command line; OUT stands for the folder that it may write to.
    """

    name: str
    workers: int
    command: tuple[str, ...]

    def into(self, out: Path) -> list[str]:
        """Returns the command line that writes to a folder."""
        return [str(out) if word == "OUT" else word for word in self.command]


def make_material(folder: Path, size: DemoSize) -> Material:
    """Makes archives in a folder, and indexes and digests them."""
    workers = pool.default_workers()
    made = make_archives(folder / "archives", size, workers=workers)
    found = find_sources([folder / "archives"], folder, None)
    index = make_index(found.parts, None, EXPECTED_SPLITS, workers, Progress())
    pool.shut_down()
    rows = np.concatenate(list(index.splits.values()))
    places, digests = folder / "places.npz", folder / "digests.json"
    np.savez(
        places,
        paths=np.array([file.path for file in index.files]),
        files=rows["file"],
        offsets=rows["offset"],
        sizes=rows["size"],
    )
    archives = {"train": made.train, "validation": made.validation}
    sums = {split: file_sha256(path) for split, path in archives.items()}
    digests.write_text(json.dumps(sums), encoding="ascii")
    return Material(
        folder / "archives", tuple(archives.values()), made.images, made.bytes, places, digests
    )


def contestants(material: Material, workers: Sequence[int]) -> list[Contestant]:
    """Returns all of them, in the order in which they run."""
    python, source = sys.executable, str(material.archives)
    usual = ("--source", source, "--out", "OUT", "--allow-incomplete", "--quiet")
    registered = (python, "-m", "benchmarks.convert_registered", str(material.digests))
    found = [
        Contestant(TFDS, 1, (python, str(HERE / "prepare_with_tfds.py"), source, "OUT")),
        Contestant(
            COPY_LIMIT,
            1,
            (python, str(HERE / "copy_limit.py"), "OUT", *map(str, material.paths)),
        ),
    ]
    for count in workers:
        found.append(
            Contestant(
                DECODE_LIMIT,
                count,
                (python, str(HERE / "decode_limit.py"), str(material.places), str(count)),
            )
        )
        for level in ("decode", "header", "off", "digest"):
            command = registered if level == "digest" else (python, "-m", "converter")
            options = (*usual, "--workers", str(count), "--validate", level)
            found.append(Contestant(level, count, (*command, *options)))
    return found


def inner_seconds(name: str, out: Path, output: str) -> tuple[float | None, float | None]:
    """Returns how long the images took, without start and metadata, and how long the index.

    Args:
        name: the contestant.
        out: where it wrote.
        output: what it printed.
    """
    if name == DECODE_LIMIT:
        return float(output), None
    try:
        (path,) = out.glob(f"imagenet2012/*/{REPORT_NAME}")
    except ValueError:
        return None, None
    report = json.loads(path.read_text(encoding="ascii"))
    return float(report["writing_seconds"]), float(report["index_seconds"])
