"""`python -m benchmarks.full_count`: the real number of images, each as small as a JPEG can be.

What the index costs, whether the time per image stays what it is at a tenth of the number, and
the same against TFDS, with equal records.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from benchmarks.compare import equal_records
from benchmarks.measure import Measurement, run
from converter.class_counts import train_images
from converter.imagenet import CMYK_IMAGES, EXAMPLES, PNG_IMAGES, numbered_name, train_name, wnids
from converter.pool import default_workers

CHECKOUT = Path(__file__).parents[1]
_IMAGES = 64
_LARGEST_NUMBER = 40_000


def make(folder: Path, share: int) -> int:
    """Writes train and validation archives of the official names and counts.

    Args:
        folder: where; made.
        share: only every so many-th image of each class and of the validation split.

    Returns:
        The number of images.
    """
    folder.mkdir(parents=True)
    images = [_tiny(number) for number in range(_IMAGES)]
    count = 0
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for label, wnid in enumerate(wnids()):
            names = _train_names(label, wnid, train_images(wnid) // share)
            count += len(names)
            data = b"".join(_members(names, images)) + bytes(1024)
            info = tarfile.TarInfo(f"{wnid}.tar")
            info.size = len(data)
            outer.addfile(info, io.BytesIO(data))
    held = EXAMPLES["validation"] // share
    with open(folder / "ILSVRC2012_img_val.tar", "wb") as file:
        names = [numbered_name("validation", number + 1) for number in range(held)]
        file.writelines(_members(names, images))
        file.write(bytes(1024))
    return count + held


def _tiny(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


def _train_names(label: int, wnid: str, count: int) -> list[str]:
    odd = CMYK_IMAGES | PNG_IMAGES
    numbers = np.random.default_rng(label).permutation(_LARGEST_NUMBER)
    names = [name for number in numbers if (name := train_name(wnid, int(number) + 1)) not in odd]
    return sorted(names[:count])


def _members(names: Iterable[str], images: list[bytes]) -> Iterator[bytes]:
    for number, name in enumerate(names):
        data = images[number % len(images)]
        info = tarfile.TarInfo(name)
        info.size = len(data)
        yield info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def main(
    folder: Annotated[
        Path | None, typer.Option(help="Where to work: about 7 GB are needed.")
    ] = None,
    tfds: Annotated[bool, typer.Option(help="Run TFDS, too, and compare.")] = True,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = default_workers(),
) -> None:
    """Measures at the full number of images and at a tenth of it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="imagenet-benchmark-") as place:
        work = Path(place)
        counts = {share: make(work / str(share), share) for share in (1000, 10, 1)}
        indexing = {share: _inspect(work / str(share), work, workers) for share in counts}
        memory = (indexing[1].peak_memory - indexing[1000].peak_memory) / counts[1]
        print(
            f"index of {counts[1]:,} images: {indexing[1].seconds:.1f} s for the whole command, "
            f"{memory:.0f} bytes of memory per image above the base"
        )
        per_image = {}
        for share in (10, 1):
            took = _convert(work / str(share), work / f"ours{share}", workers)
            per_image[share] = took.seconds / counts[share]
            print(
                f"{counts[share]:,} images: {took.seconds:.1f} s, "
                f"{1e6 * per_image[share]:.0f} microseconds an image, "
                f"{took.peak_memory / 1e6:,.0f} MB at the worst moment"
            )
        print(f"full count to a tenth, per image: {per_image[1] / per_image[10]:.2f}")
        if tfds:
            _against_tfds(work, took)


def _against_tfds(work: Path, ours: Measurement) -> None:
    script = str(Path(__file__).with_name("prepare_with_tfds.py"))
    shutil.rmtree(work / "ours10")
    theirs = run([sys.executable, script, str(work / "1"), str(work / "theirs")], work, {})
    print(
        f"TFDS: {theirs.seconds:.1f} s, {theirs.peak_memory / 1e6:,.0f} MB; this converter is "
        f"{theirs.seconds / ours.seconds:.1f} times as fast"
    )
    folders = [next((work / name / "imagenet2012").iterdir()) for name in ("ours1", "theirs")]
    print(f"{equal_records(*folders):,} records and all metadata are equal")


def _inspect(source: Path, work: Path, workers: int) -> Measurement:
    code = (
        "import sys\n"
        "from converter.inspect import inspect\n"
        "print(inspect([sys.argv[1]], workers=int(sys.argv[2])))"
    )
    return run(
        [sys.executable, "-c", code, str(source), str(workers)],
        work / "nothing",
        {"PYTHONPATH": str(CHECKOUT)},
    )


def _convert(source: Path, out: Path, workers: int) -> Measurement:
    return run(
        [sys.executable, "-m", "converter", "--source", str(source), "--out", str(out),
         "--allow-incomplete", "--quiet", "--workers", str(workers)],
        out,
        {"PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
