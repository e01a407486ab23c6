"""`python -m benchmarks`: measures everything in one run, in turn, several rounds."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.balloon import Balloon
from benchmarks.compare import Comparison
from benchmarks.contestants import (
    TFDS,
    Contestant,
    Material,
    contestants,
    inner_seconds,
    make_material,
)
from benchmarks.machine import describe_machine, drop_caches, file_system, warm
from benchmarks.measure import run
from benchmarks.table import Round, plain, plot, ratios_of, rows_of, text_table
from converter.demo import DemoSize
from converter.pool import default_workers

CHECKOUT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Course:
    """Where everybody runs.

    Attributes:
        material: the archives.
        work: the folder that everything is written to.
        balloon: holds memory that is free.
        cold: whether the archives are to be read from the disk.
    """

    material: Material
    work: Path
    balloon: Balloon
    cold: bool


def main(
    images: Annotated[int, typer.Option(help="Train images; a tenth more for validation.")] = 8000,
    rounds: Annotated[int, typer.Option(help="How often each contestant runs.")] = 3,
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "",
    media: Annotated[
        str, typer.Option(help="Of disk, tmpfs and cold (disk, caches dropped before each run).")
    ] = "disk",
    only: Annotated[
        str, typer.Option(help="Contestants to run, by name, separated by commas; else all.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Where to work; by default among the temporary files.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the results go.")] = Path("benchmark-results"),
) -> None:
    """Measures TFDS, this converter, and what decoding and copying alone cost."""
    chosen = [word for word in only.split(",") if word]
    counts = [int(word) for word in workers.split(",") if word] or sorted({1, default_workers()})
    size = DemoSize(images_per_class=max(1, images // 1000), validation=images // 10, test=0)
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": describe_machine(), "media": {}}
    shown = {}
    for medium in media.split(","):
        place = Path("/dev/shm") if medium == "tmpfs" else folder  # noqa: S108
        if place and not place.is_dir():
            print(f"{medium}: skipped, there is no {place}")
            continue
        with (
            tempfile.TemporaryDirectory(dir=place, prefix="imagenet-benchmark-") as work,
            closing(Balloon()) as balloon,
        ):
            if medium == "cold" and not drop_caches():
                print("cold: skipped, the page cache may not be emptied here")
                continue
            material = make_material(Path(work), size)
            course = Course(material, Path(work), balloon, medium == "cold")
            measured, equal = measure(course, counts, chosen, rounds)
            cache = "cold" if medium == "cold" else "warm"
            where = f"{medium} ({file_system(Path(work))}), {cache} cache"
        rows = rows_of(measured, material.images)
        ratios = ratios_of(measured)
        shown[where] = rows
        results["media"][where] = {
            "images": material.images,
            "bytes": material.size,
            "equal_records": equal,
            "rows": plain(rows),
            "ratios": ratios,
            "rounds": [asdict(one) for one in measured],
        }
        (out / "results.json").write_text(json.dumps(results, indent=1), encoding="ascii")
        print(
            f"\n{where}: {material.images:,} images of {material.size:,} bytes, medians of "
            f"{rounds} rounds; {equal:,} records equal to TFDS's\n\n{text_table(rows)}\n"
        )
        for name, value in ratios.items():
            print(f"{value:8.3f}  {name}")
    if shown:
        plot(out / "results.png", shown)
        print(f"\nResults: {out / 'results.json'}, {out / 'results.png'}")


def measure(
    course: Course, workers: list[int], only: list[str], rounds: int
) -> tuple[list[Round], int]:
    """Runs every contestant in every round, and compares what the first round made with TFDS's."""
    measured: list[Round] = []
    comparison: Comparison | None = None
    out, theirs = course.work / "out", course.work / "theirs"
    for number in range(rounds):
        for contestant in contestants(course.material, workers):
            if only and contestant.name not in only:
                continue
            shutil.rmtree(out, ignore_errors=True)
            measured.append(measure_one(contestant, course, out))
            if number or not (out / "imagenet2012").exists():
                continue
            if contestant.name == TFDS:
                out.rename(theirs)
                comparison = Comparison(_version(theirs))
            elif comparison:
                comparison.add(_version(out))
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(theirs, ignore_errors=True)
    return measured, comparison.records if comparison else 0


def measure_one(contestant: Contestant, course: Course, out: Path) -> Round:
    """Runs one contestant once."""
    drop_caches() if course.cold else warm(course.material.paths)
    course.balloon.inflate()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    took = run(contestant.into(out), out, {"PYTHONPATH": str(CHECKOUT)})
    print(f"{contestant.name:<13} {contestant.workers}  {took.seconds:7.2f} s", flush=True)
    images, index = inner_seconds(contestant.name, out, took.output)
    return Round(contestant.name, contestant.workers, took, images, index, round(load, 2))


def _version(data_dir: Path) -> Path:
    (folder,) = (data_dir / "imagenet2012").iterdir()
    return folder


if __name__ == "__main__":
    typer.run(main)
