"""Made-up photographs that cost as much to decode as those of ImageNet.

They are landscapes with objects: 1/f noise fields give clouds, ridges, surfaces and light, as the
spectrum of natural images falls with 1/f (D. Field, 1987), and edges come from things that occlude
each other. The JPEG quality is then chosen so that each image has a wanted length.

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
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageCms, ImageOps

_Array = npt.NDArray[np.float32]

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


def draw(kind: str, number: int, *, seed: int, usual: tuple[int, int], mean_bytes: int) -> bytes:
    """Returns an encoded picture; equal arguments give equal bytes.

    Args:
        kind: photograph (a JPEG, grayscale or progressive now and then), cmyk or png.
        number: which of them.
        seed: another seed gives other pictures.
        usual: the usual width and height in pixels.
        mean_bytes: the mean length of a file.
    """
    rng = np.random.default_rng([seed, ("photograph", "cmyk", "png").index(kind), number])
    # Evenly spread sequences: even few images have the wanted shares and the wanted mean.
    which_shape, which_length, which_features = (
        (number + 1) * step % 1 for step in (0.7320508076, 0.6180339887, 0.4142135624)
    )
    _, across, down = _SHAPES[bisect.bisect(_SHAPE_ENDS, which_shape)]
    width, height = max(8, round(usual[0] * across)), max(8, round(usual[1] * down))
    busy = math.exp(_SPREAD * NormalDist().inv_cdf(which_length) - _SPREAD**2 / 2)
    length = round(mean_bytes * busy * across * down / _MEAN_AREA)
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
