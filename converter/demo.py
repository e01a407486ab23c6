"""A miniature ImageNet: archives of the official layout full of made-up photographs.

It serves the demo, the tests and the benchmarks, so its images must cost what real ones cost.
"""

from __future__ import annotations

import io
import itertools
import tarfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import joblib
import numpy as np

from converter import osal
from converter.errors import OutputError, UsageError, printable
from converter.imagenet import (
    CLASSES,
    CMYK_IMAGES,
    EXAMPLES,
    PNG_IMAGES,
    numbered_name,
    train_name,
    wnids,
)
from converter.output import make_folder, output_errors
from converter.pictures import draw

_ODD_IMAGES: Final = CMYK_IMAGES | PNG_IMAGES | {numbered_name("validation", 19_877)}
"""Images that are no RGB or grayscale JPEG: those on TFDS's lists, and a CMYK validation image."""

_LARGEST_NUMBER: Final = 32_000
"""Above the trailing numbers on TFDS's lists, which go to 28,000."""

_MTIME: Final = 1_339_545_600
"""2012-06-13, the year of the archives, so that no clock gets into the bytes."""

_CHUNK: Final = 4


@dataclass(frozen=True)
class DemoSize:
    """How many images to make, and of what kind.

    Attributes:
        images_per_class: train images of each class.
        validation: validation images, at least one.
        test: test images; no test archive is written for 0.
        classes: how many classes, in the order of their labels.
        width: the usual width in pixels; some images are larger, smaller or upright.
        height: the usual height in pixels.
        mean_bytes: the mean length of an image, which cannot go below a JPEG's headers (0.6 kB).
        odd_images: whether the CMYK and PNG images of the real archives are among the images.
        seed: another seed gives other images.
        distinct: how many pictures are drawn. Further images are these again with another
            comment segment: other bytes of the same cost, without encoding. They are held in
            memory. None draws a picture for each image and holds none.

    Raises:
        UsageError: a value is out of range.
    """

    images_per_class: int = 3
    validation: int = 500
    test: int = 200
    classes: int = CLASSES
    width: int = 500
    height: int = 375
    mean_bytes: int = 110_000
    odd_images: bool = True
    seed: int = 0
    distinct: int | None = 150

    def __post_init__(self) -> None:
        limits = {
            "images_per_class": (1, _LARGEST_NUMBER // 2),
            "validation": (1, EXAMPLES["validation"]),
            "test": (0, EXAMPLES["test"]),
            "classes": (1, CLASSES),
            "width": (8, 8_000),
            "height": (8, 8_000),
            "mean_bytes": (1, 1 << 24),
            "seed": (0, (1 << 63) - 1),
            "distinct": (1, 1 << 24),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UsageError(f"{name} is {value}; it must be from {low:,} to {high:,}")

    @property
    def images(self) -> int:
        """The number of images in all archives."""
        return self.classes * self.images_per_class + self.validation + self.test


@dataclass(frozen=True)
class DemoArchives:
    """What was made.

    Attributes:
        train: the archive of class archives.
        validation: the archive of validation images.
        test: the archive of test images, None if there are none.
        images: the number of images in all of them.
        bytes: the sum of the images' lengths.
    """

    train: Path
    validation: Path
    test: Path | None
    images: int
    bytes: int


def make_archives(folder: Path, size: DemoSize, *, workers: int = 1) -> DemoArchives:
    """Writes archives under their official names, and never over existing ones.

    The bytes depend on the size (and the versions of numpy and Pillow) alone, not on the workers.
    Memory holds one class archive and the distinct pictures.

    Args:
        folder: where to write; made if it does not exist.
        size: what to make.
        workers: processes that draw and encode.

    Raises:
        OutputError: an archive cannot be written, or one of these names is taken already.
    """
    train, validation, test = (
        folder / f"ILSVRC2012_img_{split}.tar" for split in ("train", "val", "test")
    )
    for path in (train, validation, test):
        if path.exists():
            raise OutputError(
                f"{printable(str(path))} exists, and made-up archives never replace one. "
                "Move it away or choose another folder."
            )
    make_folder(folder)
    odd = _odd_images(size, workers) if size.odd_images else {}
    count = size.images if size.distinct is None else min(size.distinct, size.images)
    pictures = _draw(size, [("photograph", number) for number in range(count)], workers)
    images = _Images(itertools.cycle(pictures) if count < size.images else pictures, odd)
    _write_tar(train, _class_tars(size, images))
    _write_tar(validation, images.named(_numbered_names("validation", size.validation)))
    if size.test:
        _write_tar(test, images.named(_numbered_names("test", size.test)))
    return DemoArchives(train, validation, test if size.test else None, size.images, images.bytes)


class _Images:
    """Gives each name its image, and adds up their lengths.

    Args:
        pictures: as many as there will be other names, or more.
        odd: the images of some names.
    """

    def __init__(self, pictures: Iterator[bytes], odd: dict[str, bytes]) -> None:
        self.bytes = 0
        self._pictures = pictures
        self._odd = odd

    def named(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            data = self._odd.get(name) or _with_comment(next(self._pictures), name)
            self.bytes += len(data)
            yield name, data


def _with_comment(jpeg: bytes, text: str) -> bytes:
    """Adds a COM segment behind the first one, which JFIF wants to be its own."""
    end = 4 + int.from_bytes(jpeg[4:6], "big")
    segment = b"\xff\xfe" + (2 + len(text)).to_bytes(2, "big") + text.encode("ascii")
    return jpeg[:end] + segment + jpeg[end:]


def _class_tars(size: DemoSize, images: _Images) -> Iterator[tuple[str, bytes]]:
    for label, wnid in enumerate(wnids()[: size.classes]):
        buffer = io.BytesIO()
        _fill_tar(buffer, images.named(_train_names(size, label, wnid)))
        yield f"{wnid}.tar", buffer.getvalue()


def _train_names(size: DemoSize, label: int, wnid: str) -> list[str]:
    """Returns the names of a class in the order of the official archive, that of the strings."""
    odd = [name for name in _ODD_IMAGES if name.startswith(wnid)] if size.odd_images else []
    numbers = np.random.default_rng([size.seed, 3, label]).choice(
        _LARGEST_NUMBER, size.images_per_class, replace=False
    )
    names = dict.fromkeys([*odd, *(train_name(wnid, 1 + int(number)) for number in numbers)])
    return sorted(itertools.islice(names, size.images_per_class))


def _numbered_names(split: str, count: int) -> Iterator[str]:
    return (numbered_name(split, number) for number in range(1, count + 1))


def _write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with output_errors(path):
        try:
            with open(temporary, "wb") as file:
                _fill_tar(file, members)
            osal.replace(temporary, path)
        finally:
            osal.remove(temporary, missing_ok=True)


def _fill_tar(file: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), _MTIME
            tar.addfile(info, io.BytesIO(data))


def _odd_images(size: DemoSize, workers: int) -> dict[str, bytes]:
    chosen = frozenset(wnids()[: size.classes])
    last = numbered_name("validation", size.validation)
    names = sorted(
        n for n in _ODD_IMAGES if n.split("_")[0] in chosen or (n[0] == "I" and n <= last)
    )
    tasks = [("png" if name in PNG_IMAGES else "cmyk", n) for n, name in enumerate(names)]
    return dict(zip(names, _draw(size, tasks, workers), strict=True))


def _draw(size: DemoSize, tasks: list[tuple[str, int]], workers: int) -> Iterator[bytes]:
    """Yields the encoded pictures of (kind, number) in their order."""
    chunks = [tasks[start : start + _CHUNK] for start in range(0, len(tasks), _CHUNK)]
    parallel = joblib.Parallel(
        n_jobs=min(workers, osal.MOST_WORKERS), return_as="generator", batch_size=1
    )
    results = parallel(joblib.delayed(_draw_chunk)(size, chunk) for chunk in chunks)
    try:
        for pictures in results:
            yield from pictures
    finally:
        with warnings.catch_warnings():  # joblib warns when a failure elsewhere leaves tasks over
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _draw_chunk(size: DemoSize, tasks: list[tuple[str, int]]) -> list[bytes]:
    return [
        draw(
            kind,
            number,
            seed=size.seed,
            usual=(size.width, size.height),
            mean_bytes=size.mean_bytes,
        )
        for kind, number in tasks
    ]
