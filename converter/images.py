"""Judges images as TensorFlow does when the dataset is read.

The judge is `tf.image.decode_image(data, channels=3)`, which TFDS's Image feature calls. For JPEG
and BMP the verdict here is the same; for PNG, GIF and WebP it is Pillow's, under TensorFlow's
conditions on the format.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from PIL import Image, ImageFile, UnidentifiedImageError

from converter.errors import printable

_MAX_MEMORY: Final = 128 << 20
"""Bytes that decoding one image may take: a worker is to stay under 200 MB."""

_MAX_BLOCK_VISITS: Final = 1 << 28
"""Blocks times scans of a JPEG: some seconds. Ordinary ones of `_MAX_MEMORY` have 2**24."""

_MAX_SAMPLES: Final = 1 << 29
"""TensorFlow refuses JPEGs from this many samples on (its jpeg_mem.cc)."""

_MAX_SIDE: Final = 65500
"""In pixels; libjpeg's own limit (JPEG_MAX_DIMENSION)."""

_FENCE: Final = b"\xff\x02" * 0x8000
"""Markers that libjpeg refuses, as many as one segment's length can skip."""

_SHRINK: Final = 8
_MODES: Final = {1: "L", 3: "RGB", 4: "CMYK"}
_FRAMES: Final = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_OTHER_FRAMES: Final = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xCC} - _FRAMES
_PROGRESSIVE: Final = frozenset((0xC2, 0xCA))
_BARE: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD8)))
_AFTER_SCAN: Final = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
_READ_UNCHECKED: Final = {**dict.fromkeys(_FRAMES, 8), 0xDA: 3, 0xDB: 67}
"""Bytes after a marker that libjpeg reads before it looks whether the segment has as many."""

_FRAME_STUB: Final = re.compile(rb"\xff[\xc0-\xc2\xc9\xca].{1,7}\Z", re.DOTALL)
_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"


class CorruptImage(Exception):
    """TensorFlow would refuse the image, or it takes more memory or time than it may.

    Its one argument is the reason: one line of ASCII.
    """


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What the header of an image says.

    Attributes:
        format: JPEG, PNG, GIF, BMP or WEBP.
        mode: Pillow's name for the kind of pixels, such as L, RGB or CMYK.
        width: in pixels.
        height: in pixels.
    """

    format: str
    mode: str
    width: int
    height: int


def validate(data: bytes, level: str) -> ImageFacts:
    """Returns what an image is, if TensorFlow decodes it.

    Args:
        data: the file.
        level: header (only what stands before the pixels) or decode (everything).

    Raises:
        CorruptImage: it does not.
    """
    if level not in ("header", "decode"):
        raise ValueError(f"level must be header or decode, not {level!r}")
    # TFDS turns this on for the whole process in some of its functions.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        for magic, judge in _JUDGES.items():
            if data.startswith(magic):
                return judge(data, level == "decode")
    except CorruptImage:
        raise
    except MemoryError as error:
        raise CorruptImage("decoding takes more memory than there is") from error
    except UnidentifiedImageError as error:
        raise CorruptImage("the header of the image is broken") from error
    except Exception as error:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        raise CorruptImage(printable(reason)) from error
    if not data:
        raise CorruptImage("the image is empty")
    raise CorruptImage(f"no format that TensorFlow reads: the data begins with {data[:8].hex(' ')}")


class _Header(NamedTuple):
    width: int
    height: int
    components: int
    blocks: int
    multi_scan: bool
    scan: int


def _judge_jpeg(data: bytes, decode: bool) -> ImageFacts:
    header = _jpeg_header(data)
    if decode:
        if header.multi_scan:
            _require_bounded(header, data)
        try:
            _decode_jpeg(data + _FENCE, header)
        except ValueError:
            _explain(data, header)
    return ImageFacts("JPEG", _MODES[header.components], header.width, header.height)


def _decode_jpeg(data: bytes, header: _Header) -> None:
    """Decodes with Pillow's JPEG decoder, without its reading of the metadata.

    It reads every entropy-coded bit and makes as few pixels of them as it can: the luminance of
    a JPEG in color, at an eighth of the scale. All data is handed over at once, as TensorFlow
    does; given it piece by piece, Pillow may be content before it has seen the last.

    Raises:
        ValueError: the data is broken, or there is "not enough image data".
    """
    mode = "CMYK" if header.components == 4 else "L"
    size = (-(-header.width // _SHRINK), -(-header.height // _SHRINK))
    Image.frombytes(mode, size, data, "jpeg", mode, "", _SHRINK, 0)


def _explain(data: bytes, header: _Header) -> None:
    """Raises the reason why a JPEG does not decode, unless TensorFlow decodes it all the same."""
    # Pillow's libjpeg refuses a second frame header before it has read it, TensorFlow's after.
    # Another marker that is cut off stands in for such a one.
    tail = max(header.scan, len(data) - 9)
    try:
        _decode_jpeg(data[:tail] + _FRAME_STUB.sub(b"\xff\xc4\0", data[tail:]), header)
    except ValueError as error:
        if "not enough" in str(error):
            raise CorruptImage("the data ends before the last pixel") from error
        raise CorruptImage("the JPEG data is broken") from error
    # Pillow is content with having all pixels. TensorFlow goes on to the end of the image and,
    # when the data ends first, fails or not by the accident of where.
    if not _ends_inside_marker(data, header.scan):
        raise CorruptImage("the data ends, or turns into zeros, before the end of the image")


def _ends_inside_marker(data: bytes, position: int) -> bool:
    """Returns whether the data after the scan ends within a marker or its segment.

    With a byte of either pending, TensorFlow's MemFillInputBuffer (jpeg_handle.cc) lets libjpeg
    pause instead of failing, and after the last pixel nobody looks at the pause.

    One such accident is not followed but refused: a 16-bit quantization table that is longer than
    its segment says, and than the data.
    """
    while match := _AFTER_SCAN.search(data, position):
        position = match.end()
        marker, rest = data[position - 1], len(data) - position
        length = int.from_bytes(data[position : position + 2], "big")
        if rest < _READ_UNCHECKED.get(marker, 2) and (marker != 0xDB or length != 2):
            return rest > 0
        if rest < length:
            # libjpeg looks at no more than 14 bytes of APP0 and APP14 and skips what it does not
            # look at, in one step: the data ends there with nothing pending.
            if marker in (0xE0, 0xEE):
                return rest < 16
            return marker < 0xE0 and marker != 0xDC
        position += max(2, length)
    return data.endswith(b"\xff")


def _jpeg_header(data: bytes) -> _Header:
    """Reads up to the first scan with the rules of libjpeg's jdmarker.c."""
    frame: tuple[int, bytes] | None = None
    for marker, position, segment in _segments(data):
        if marker in _FRAMES:
            if frame:
                raise CorruptImage("the JPEG has two frame headers")
            frame = marker, segment
        elif marker in _OTHER_FRAMES:
            raise CorruptImage("lossless or hierarchical JPEG, which TensorFlow does not read")
        elif marker in (0xD8, 0xD9):
            raise CorruptImage("the JPEG ends or begins anew before its pixels")
        elif marker == 0xDA:
            if not frame or not segment:
                raise CorruptImage("the JPEG has pixels without a header")
            return _frame(*frame, segment[0], position + 2 + len(segment))
    raise CorruptImage("the data ends inside the JPEG header")


def _segments(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yields each marker, where its segment begins, and the segment without its length."""
    position, end = 2, len(data)
    while (position := data.find(b"\xff", position)) >= 0:
        while position < end and data[position] == 0xFF:
            position += 1
        if position == end:
            return
        marker = data[position]
        position += 1
        if marker in _BARE:
            continue
        length = int.from_bytes(data[position : position + 2], "big")
        if position + max(2, length) > end and marker not in (0xD8, 0xD9):
            return
        yield marker, position, data[position + 2 : position + length]
        position += max(2, length)


def _frame(marker: int, segment: bytes, scanned: int, scan: int) -> _Header:
    if len(segment) < 6 or len(segment) != 6 + 3 * segment[5]:
        raise CorruptImage("the JPEG frame header is broken")
    precision, height, width, components = struct.unpack_from(">BHHB", segment)
    across, down = [s >> 4 for s in segment[7::3]], [s & 15 for s in segment[7::3]]
    if precision != 8 or components not in _MODES:
        raise CorruptImage(f"JPEG with {components} components of {precision} bits")
    if not width or not height:
        raise CorruptImage(f"JPEG of {width} x {height} pixels")
    if max(width, height) > _MAX_SIDE or width * height * components >= _MAX_SAMPLES:
        raise CorruptImage(f"{width} x {height} pixels are more than TensorFlow decodes")
    most_across, most_down = max(across), max(down)
    blocks = 0
    for x, y in zip(across, down, strict=True):
        # libjpeg cannot upsample by a fraction. At the small scale it would not have to.
        if not x or not y or most_across % x or most_down % y:
            raise CorruptImage("JPEG with a chroma sampling that TensorFlow does not read")
        blocks += -(-width * x // (8 * most_across)) * -(-height * y // (8 * most_down))
    multi_scan = marker in _PROGRESSIVE or scanned < components
    return _Header(width, height, components, blocks, multi_scan, scan)


def _require_bounded(header: _Header, data: bytes) -> None:
    """Raises for a JPEG in several scans, whose coefficients are all kept, that is a bomb."""
    needed = 128 * header.blocks
    size = f"progressive JPEG of {header.width} x {header.height} pixels"
    if needed > _MAX_MEMORY:
        raise CorruptImage(f"{size}: decoding would take {needed >> 20} MB of memory")
    scans = 1 + data.count(b"\xff\xda", header.scan)
    if header.blocks * scans > _MAX_BLOCK_VISITS:
        raise CorruptImage(f"{size} in {scans} scans: decoding would take minutes")


def _judge_bmp(data: bytes, decode: bool) -> ImageFacts:
    """Applies the conditions of TensorFlow's decode_image_op.cc, which are about sizes alone."""
    if len(data) < 32:
        raise CorruptImage("the data ends inside the BMP header")
    offset, width, height, bits = struct.unpack_from("<i4xiixxh", data, 10)
    channels = int(bits / 8)
    if channels not in (1, 3, 4):
        raise CorruptImage(f"BMP with {bits} bits per pixel, which TensorFlow does not read")
    if width <= 0 or not height or offset < 0 or width * abs(height) >= (1 << 31) // 8:
        raise CorruptImage(f"BMP of {width} x {height} pixels")
    expected = offset + (channels * width + 3) // 4 * 4 * abs(height)
    if len(data) != expected:
        raise CorruptImage(f"the BMP has {len(data)} bytes, its header says {expected}")
    return ImageFacts("BMP", {1: "L", 3: "RGB", 4: "RGBA"}[channels], width, abs(height))


def _judge_png(data: bytes, decode: bool) -> ImageFacts:
    return _judge_by_pillow("PNG", _critical_chunks(data), decode)


def _critical_chunks(data: bytes) -> bytes:
    """Returns a PNG without its metadata, where libpng ignores damage and Pillow does not."""
    kept, position = [_PNG], len(_PNG)
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        chunk = data[position : position + 12 + length]
        if len(chunk) < 12 + length or not chunk[4:8].isalpha():
            break
        if not chunk[4] & 0x20:
            if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
                raise CorruptImage("a checksum of the PNG does not match")
            kept.append(chunk)
            if chunk[4:8] == b"IEND":
                return b"".join(kept)
        position += 12 + length
    raise CorruptImage("the PNG is cut off or broken")


def _judge_by_pillow(format_name: str, data: bytes, decode: bool) -> ImageFacts:
    """Decodes the first frame; TensorFlow is content with it when later ones are damaged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=(format_name,)) as image:
            facts = ImageFacts(format_name, image.mode, *image.size)
            if format_name == "WEBP" and (facts.mode != "RGB" or getattr(image, "n_frames", 1) > 1):
                raise CorruptImage("WebP with transparency or animation does not fit 3 channels")
            if 4 * facts.width * facts.height > _MAX_MEMORY:
                raise CorruptImage(f"{format_name} of {facts.width} x {facts.height} pixels")
            if decode:
                image.load()
    return facts


_JUDGES: Final[dict[bytes, Callable[[bytes, bool], ImageFacts]]] = {
    _JPEG: _judge_jpeg,
    _PNG: _judge_png,
    b"GIF8": partial(_judge_by_pillow, "GIF"),
    b"BM": _judge_bmp,
    b"RIFF": partial(_judge_by_pillow, "WEBP"),
}
