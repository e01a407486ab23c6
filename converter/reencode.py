"""Re-encodes CMYK and PNG images as TFDS does, with TensorFlow or to the same bytes without it.

TFDS decodes them with TensorFlow and encodes the pixels as an RGB JPEG of quality 100. TensorFlow
takes seconds and hundreds of megabytes to import. Pillow's wheels carry the same libjpeg-turbo,
which gives the same bytes where it is asked for the same arithmetic; `by_pillow` does so for the
images of which that is known, and only with a libjpeg that gives a known answer.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from converter.images import CorruptImage, validate

CMYK_TO_RGB: Final = "jpeg_cmyk_to_rgb"
PNG_TO_JPEG: Final = "png_to_jpeg"
"""The conversions, under the names of TFDS's functions."""

_FULL_SCALE_FAST_DCT: Final = (1, 1)
"""TensorFlow's decoder uses the fast DCT, which Pillow uses in its draft mode alone."""

_ADOBE_BYTES: Final = 12
"""Length of the APP14 segment that says that a JPEG is Adobe's."""

_KNOWN_QUESTION: Final = "55995274b5ca2b9f829c616f1a0417d0a003f1ba4c30da4246b1dfbaf2af6c56"
_KNOWN_ANSWER: Final = "55c336c19b2d884d67c932d569290902384dfc418e9774bd6e7f376587cf3988"

Pixels = NDArray[np.uint8]


def by_tensorflow(conversion: str, data: bytes) -> bytes:
    """Returns what TFDS's own function makes of an image.

    Args:
        conversion: `CMYK_TO_RGB` or `PNG_TO_JPEG`.
        data: the file.

    Raises:
        CorruptImage: TensorFlow cannot decode it.
    """
    import tensorflow as tf  # seconds and hundreds of megabytes, which workers do without
    import tensorflow_datasets as tfds

    try:
        return bytes(getattr(tfds.core.utils, conversion)(data))
    except tf.errors.OpError as error:
        raise CorruptImage("TensorFlow cannot decode the image, so not convert it") from error


def by_pillow(conversion: str, data: bytes) -> bytes | None:
    """Returns the same bytes as `by_tensorflow`, or None where that is not certain.

    Certain are sound CMYK JPEGs without subsampling, whose pixels depend on nothing but the
    inverse DCT, and PNGs of 8 bits in RGB, with or without transparency.

    Args:
        conversion: `CMYK_TO_RGB` or `PNG_TO_JPEG`.
        data: the file.
    """
    if not _gives_known_answer():
        return None
    try:
        validate(data, "decode")
        pixels = _DECODERS[conversion](data)
    except (CorruptImage, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return None if pixels is None else _encoded(pixels)


def _cmyk_pixels(data: bytes) -> Pixels | None:
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        jpeg: Any = image
        if image.mode != "CMYK" or any(layer[1:3] != (1, 1) for layer in jpeg.layer):
            return None
        jpeg.decoderconfig = _FULL_SCALE_FAST_DCT
        inverted = np.asarray(image).astype(np.int32)
        adobe = [data for name, data in jpeg.applist if name == "APP14"]
    if any(data[:5] != b"Adobe" or len(data) != _ADOBE_BYTES for data in adobe):
        return None
    # Pillow inverts always. Adobe stores ink inverted, and TensorFlow's jpeg_mem.cc knows.
    light = 255 - inverted if adobe else inverted
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)


def _png_pixels(data: bytes) -> Pixels | None:
    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        if image.mode not in ("RGB", "RGBA") or image.tile[0].args != image.mode:
            return None
        return np.asarray(image)[..., :3]


_DECODERS: Final[Mapping[str, Callable[[bytes], Pixels | None]]] = {
    CMYK_TO_RGB: _cmyk_pixels,
    PNG_TO_JPEG: _png_pixels,
}


def _encoded(pixels: Pixels) -> bytes:
    """Encodes with the defaults of TensorFlow's encode_jpeg, which it writes into the header."""
    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.save(file, "JPEG", quality=100, subsampling="4:2:0", dpi=(300, 300))
    return file.getvalue()


@functools.cache
def _gives_known_answer() -> bool:
    """Returns whether Pillow's libjpeg encodes and decodes like the one of TensorFlow's wheels.

    A system's own Pillow may use mozjpeg or the original libjpeg.
    """
    question = known_question()
    if hashlib.sha256(question).hexdigest() != _KNOWN_QUESTION:
        return False
    pixels = _cmyk_pixels(question)
    return pixels is not None and hashlib.sha256(_encoded(pixels)).hexdigest() == _KNOWN_ANSWER


def known_question() -> bytes:
    """Returns a CMYK JPEG whose conversion by TensorFlow is known."""
    height, width = 61, 83
    y, x, ink = np.mgrid[:height, :width, :4]
    values = (x * (3 + ink) + y * y * (5 - ink) + (x * y) % 37 * 5) % 256
    file = io.BytesIO()
    Image.fromarray(values.astype(np.uint8), "CMYK").save(file, "JPEG", quality=90)
    return file.getvalue()
