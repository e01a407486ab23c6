"""A miniature ImageNet: archives of the official layout full of made-up photographs.

It serves the demo, the tests and the benchmarks, so its images must cost what real ones cost.

The pictures are landscapes with objects: 1/f noise fields give clouds, ridges, surfaces and light,
as the spectrum of natural images falls with 1/f (D. Field, 1987), and edges come from things that
occlude each other. The JPEG quality is then chosen so that each image has a wanted length.

What a picture costs, in ms by Pillow 13, best of 13 decodes, both sets in one loop on two shared
cores (a second run was 14 % quicker throughout, so that only the columns' relation counts):

                                       mean kB   full   1/8 scale   full : 1/8
    the 150 pictures of the default     106.0    1.79     1.29         1.38
    7 photographs, 500x375, 4:2:0       107.2    1.65     1.24         1.33

The photographs are those that scikit-learn and scikit-image ship (china, flower, rocket, astronaut,
coffee, chelsea, motorcycle), scaled, and encoded at the quality that comes nearest to 109 kB.
1,162 real ImageNet images measured at another time: 109 kB, 1.79, 1.23, 1.46.
"""

from __future__ import annotations

import bisect
import functools
import io
import itertools
import math
import tarfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, BinaryIO, Final

import joblib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageCms, ImageOps

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

_Array = npt.NDArray[np.float32]

_ODD_IMAGES: Final = CMYK_IMAGES | PNG_IMAGES | {numbered_name("validation", 19_877)}
"""Images that are no RGB or grayscale JPEG: those on TFDS's lists, and a CMYK validation image."""

_LARGEST_NUMBER: Final = 32_000
"""Above the trailing numbers on TFDS's lists, which go to 28,000."""

_MTIME: Final = 1_339_545_600
"""2012-06-13, the year of the archives, so that no clock gets into the bytes."""

_SHAPES: Final = (
    (0.47, 1.0, 1.0),
    (0.20, 1.0, 0.889),
    (0.16, 0.75, 1.333),
    (0.07, 0.8, 0.8),
    (0.02, 0.5, 0.5),
    (0.025, 0.25, 0.3),
    (0.025, 1.28, 1.28),
    (0.025, 2.0, 2.0),
    (0.005, 3.0, 3.0),
)
"""Share of the images, width and height over the usual ones."""

_SHAPE_ENDS: Final = tuple(itertools.accumulate(share for share, _, _ in _SHAPES[:-1]))
_MEAN_AREA: Final = sum(share * width * height for share, width, height in _SHAPES)
_SPREAD: Final = 0.4
"""Standard deviation of the logarithm of bytes per pixel."""

_QUALITIES: Final = (20, 35, 50, 60, 68, 75, 80, 84, 87, 90, 92, 94, 95, 96, 97, 98, 99, 100)
_GRAY, _PROGRESSIVE, _FULL_CHROMA = (0.0, 0.025), (0.025, 0.04), (0.04, 0.16)
_ICC, _EXIF = (0.1, 0.38), (0.36, 0.42)
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
            temporary.unlink(missing_ok=True)


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
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(_draw_chunk)(size, chunk) for chunk in chunks)
    try:
        for pictures in results:
            yield from pictures
    finally:
        with warnings.catch_warnings():  # joblib warns when a failure elsewhere leaves tasks over
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _draw_chunk(size: DemoSize, tasks: list[tuple[str, int]]) -> list[bytes]:
    return [_draw_one(size, kind, number) for kind, number in tasks]


def _draw_one(size: DemoSize, kind: str, number: int) -> bytes:
    rng = np.random.default_rng([size.seed, ("photograph", "cmyk", "png").index(kind), number])
    # Evenly spread sequences: even few images have the wanted shares and the wanted mean.
    which_shape, which_length, which_features = (
        (number + 1) * step % 1 for step in (0.7320508076, 0.6180339887, 0.4142135624)
    )
    _, across, down = _SHAPES[bisect.bisect(_SHAPE_ENDS, which_shape)]
    width, height = max(8, round(size.width * across)), max(8, round(size.height * down))
    busy = math.exp(_SPREAD * NormalDist().inv_cdf(which_length) - _SPREAD**2 / 2)
    length = round(size.mean_bytes * busy * across * down / _MEAN_AREA)
    image = Image.fromarray(_paint(rng, width, height, busy))
    if kind == "png":
        image.putalpha(ImageOps.invert(Image.radial_gradient("L")).resize(image.size))
        return _encode(image, "PNG")
    if kind == "cmyk":
        return _encode_to_length(_cmyk(image), length)

    def has(feature: tuple[float, float]) -> bool:
        return feature[0] <= which_features < feature[1]

    return _encode_to_length(
        image.convert("L") if has(_GRAY) else image,
        length,
        progressive=has(_PROGRESSIVE),
        subsampling="4:4:4" if has(_FULL_CHROMA) else "4:2:0",
        icc_profile=_icc_profile() if has(_ICC) else None,
        exif=_exif() if has(_EXIF) else b"",
    )


def _encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def _encode_to_length(image: Image.Image, length: int, **options: Any) -> bytes:
    """Returns the JPEG of that quality which comes nearest to the length."""

    @functools.cache
    def encode(quality: int) -> bytes:
        return _encode(image, "JPEG", quality=quality, **options)

    enough = bisect.bisect_left(
        _QUALITIES, length, hi=len(_QUALITIES) - 1, key=lambda quality: len(encode(quality))
    )
    nearest = map(encode, _QUALITIES[max(0, enough - 1) : enough + 1])
    return min(nearest, key=lambda data: abs(len(data) - length))


def _cmyk(image: Image.Image) -> Image.Image:
    """Converts to CMYK with the common share of the inks printed in black."""
    inks = ImageOps.invert(image).split()
    black = functools.reduce(ImageChops.darker, inks)
    return Image.merge("CMYK", [*(ImageChops.subtract(ink, black) for ink in inks), black])


@functools.cache
def _icc_profile() -> bytes:
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[24:36] = bytes(12)  # the time of making
    return bytes(profile)


@functools.cache
def _exif() -> bytes:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Miniature", "ImageNet", 1  # maker, model, upright
    return exif.tobytes()


def _paint(rng: np.random.Generator, width: int, height: int, busy: float) -> npt.NDArray[np.uint8]:
    """Paints a landscape: sky, ridges one before the other, objects, light, grain.

    Args:
        rng: decides everything.
        width: in pixels.
        height: in pixels.
        busy: the strength of fine detail, about 1.
    """
    light, clouds = _noise(rng, width, height, 1.8)
    texture = _noise(rng, width, height, 1.0)
    y = np.arange(height, dtype=np.float32)[:, None]
    sky, haze, ground = _colors(rng)
    pixels: _Array = np.tile(sky + (haze - sky) * (y / height)[..., None], (1, width, 1))
    cover = np.clip(clouds + rng.uniform(-1, 0.3), 0, 2)[..., None]
    pixels += 0.4 * cover * (haze * 0.5 + 125 - pixels)
    contrast = np.float32(0.19 * busy**0.8)
    top, ridges = rng.uniform(0.15, 0.7) * height, int(rng.integers(2, 6))
    for ridge in range(1, ridges + 1):
        near = np.float32(ridge / ridges)
        edge = top + clouds[rng.integers(height)] * np.float32(height * 0.05 * (1.3 - near))
        first = int(np.clip(edge.min(), 0, height - 1))
        alpha = np.clip(y[first:] - edge, 0, 1)[..., None]
        grit = np.roll(texture[ridge % 2, first:], int(rng.integers(width)), 1)[..., None]
        surface = haze + (ground * rng.uniform(0.8, 1.1) - haze) * near
        below = pixels[first:]
        below += alpha * (surface * (1 + near * contrast * grit) - below)
        top += (height - top) * rng.uniform(0.1, 0.45)
    for radius in np.sort(np.minimum(0.3, 0.025 * rng.random(rng.integers(2, 30)) ** -0.6)):
        center = rng.random(2) * (width, 0.45 * height) + (0, 0.55 * height)
        _paint_object(rng, pixels, radius * min(width, height), center, contrast * texture[0])
    pixels *= (1 + 0.12 * light)[..., None]
    pixels += rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(
        2.5 * busy**1.5
    )
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _noise(rng: np.random.Generator, width: int, height: int, exponent: float) -> _Array:
    """Returns two fields whose spectrum falls with 1/f**exponent, of mean 0 and deviation 1."""
    white = rng.standard_normal((height, width, 2), dtype=np.float32).view(np.complex64)[..., 0]
    both = np.fft.fft2(white * _spectrum(width, height, exponent))
    fields: _Array = np.stack([both.real, both.imag]).astype(np.float32)
    fields /= fields.std(axis=(1, 2), keepdims=True)
    return fields


@functools.lru_cache(maxsize=32)
def _spectrum(width: int, height: int, exponent: float) -> _Array:
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width))
    frequency[0, 0] = np.inf
    amplitude: _Array = (frequency**-exponent).astype(np.float32)
    return amplitude


def _colors(rng: np.random.Generator) -> _Array:
    """Returns colors of sky, haze and ground."""
    skies = ((70, 120, 190), (120, 150, 185), (165, 170, 178), (205, 130, 95), (40, 50, 85))
    grounds = ((70, 95, 45), (120, 105, 70), (150, 130, 100), (85, 85, 88), (60, 75, 85))
    sky, ground = rng.choice(skies), rng.choice(grounds)
    haze = sky * 0.5 + rng.uniform(70, 120)
    return (np.stack([sky, haze, ground]) + rng.normal(0, 9, (3, 3))).astype(np.float32)


def _paint_object(
    rng: np.random.Generator, pixels: _Array, radius: float, center: npt.NDArray[Any], grit: _Array
) -> None:
    """Paints an ellipsoid, lit from above, with the texture in `grit`."""
    height, width = grit.shape
    left, upper = (max(0, int(middle - 1.5 * radius)) for middle in center)
    right, lower = int(center[0] + 1.5 * radius) + 1, int(center[1] + 1.5 * radius) + 1
    patch = pixels[upper:lower, left:right]
    u = (np.arange(left, min(right, width), dtype=np.float32) - center[0]) / radius
    v = (np.arange(upper, min(lower, height), dtype=np.float32) - center[1])[:, None] / radius
    u, v = u * rng.uniform(0.7, 1.4) + v * rng.normal(0, 0.3), v * rng.uniform(0.8, 1.4)
    square = u * u + v * v
    depth = np.sqrt(np.clip(1 - square, 0, 1))
    shade = (
        0.45 + 0.6 * np.clip(0.7 * depth - 0.6 * v - 0.3 * u, 0, 1) + grit[upper:lower, left:right]
    )
    color = rng.uniform(30, 230) + rng.normal(0, 30, 3)
    alpha = np.clip((1 - square) * radius * 0.5, 0, 1)[..., None]
    patch += (alpha * (shade[..., None] * color - patch)).astype(np.float32)
