"""The verdict on images against TensorFlow's own, and what it may cost."""

from __future__ import annotations

import csv
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from converter import images
from converter.images import CorruptImage, ImageFacts, validate

CHANNELS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def accepts(data: bytes, level: str = "decode") -> bool:
    try:
        validate(data, level)
    except CorruptImage as error:
        (reason,) = error.args
        assert reason.isascii()
        assert reason.isprintable()
        assert reason
        return False
    return True


def tensorflow_accepts(tf: Any, data: bytes) -> bool:
    try:
        tf.image.decode_image(data, channels=3)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def picture(mode: str = "RGB", size: tuple[int, int] = (40, 30), seed: int = 0) -> Image.Image:
    if mode in ("1", "P"):
        return picture("L", size, seed).convert(mode)
    width, height = size
    rng = np.random.default_rng(seed)
    pixels = rng.normal(128, rng.choice([5, 30, 60]), (height, width, CHANNELS[mode]))
    pixels += np.linspace(-50, 50, width)[None, :, None]
    return Image.frombytes(mode, size, pixels.clip(0, 255).astype(np.uint8).tobytes())


def encoded(image: Image.Image, format_name: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_name, **options)
    return file.getvalue()


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def jpeg_header(
    width: int, height: int, components: int = 3, frame: int = 0xC0, sampling: bytes = b"\x11" * 3
) -> bytes:
    """A JPEG up to its first scan, whose Huffman codes mean nothing but zeros."""
    parts = b"".join(bytes([n + 1, sampling[n], 0]) for n in range(components))
    tables = b"".join(segment(0xC4, bytes([kind, 1]) + bytes(15) + b"\0") for kind in (0x00, 0x10))
    return (
        b"\xff\xd8"
        + segment(0xDB, b"\0" + b"\1" * 64)
        + segment(frame, struct.pack(">BHHB", 8, height, width, components) + parts)
        + tables
    )


def scan(components: int, spectrum: bytes) -> bytes:
    parts = b"".join(bytes([n + 1, 0]) for n in range(components))
    return segment(0xDA, bytes([components]) + parts + spectrum)


def samples(count: int, seed: int) -> list[bytes]:
    """JPEGs of every kind that Pillow writes."""
    rnd = random.Random(seed)
    made = []
    for number in range(count):
        mode = ("RGB", "RGB", "L", "CMYK")[number % 4]
        options: dict[str, Any] = {"quality": rnd.choice([30, 75, 95])}
        if mode != "L":
            options["subsampling"] = rnd.choice([0, 1, 2])
        options["progressive"] = rnd.random() < 0.3
        options["optimize"] = rnd.random() < 0.3
        if rnd.random() < 0.35:
            options["restart_marker_blocks"] = rnd.randint(1, 8)
        if rnd.random() < 0.2:
            options["exif"] = b"Exif\0\0" + rnd.randbytes(60)
        size = rnd.randint(1, 90), rnd.randint(1, 90)
        made.append(encoded(picture(mode, size, seed * 1000 + number), **options))
    return made


def damages(data: bytes, rnd: random.Random) -> list[tuple[str, bytes]]:
    """Each kind of damage once, at a random place."""
    start = data.rfind(b"\xff\xda") + 2

    def edited(change: Callable[[bytearray, int], object], lowest: int = start) -> bytes:
        copy = bytearray(data)
        change(copy, rnd.randrange(lowest, len(copy)))
        return bytes(copy)

    def flip(copy: bytearray, place: int) -> None:
        copy[place] ^= 1 << rnd.randrange(8)

    def put(*values: int) -> Callable[[bytearray, int], object]:
        def change(copy: bytearray, place: int) -> None:
            copy[place : place + len(values)] = bytes(values)

        return change

    def insert(copy: bytearray, place: int) -> None:
        copy[place:place] = rnd.randbytes(rnd.randint(1, 4))

    def delete(copy: bytearray, place: int) -> None:
        del copy[place : place + rnd.randint(1, 4)]

    cut, zeros = rnd.randrange(3, len(data)), rnd.randrange(3, len(data))
    return [
        ("whole", data),
        ("cut", data[:cut]),
        ("cut near the end", data[: -rnd.randint(1, 12)]),
        ("zeros to the same length", data[:zeros] + bytes(len(data) - zeros)),
        ("no end marker", data[:-2]),
        ("no end marker, then zeros", data[:-2] + bytes(64)),
        ("half an end marker", data[:-1]),
        ("garbage after the end", data + rnd.randbytes(20)),
        ("two files in one", data + data),
        ("flipped bit", edited(flip)),
        ("flipped bit in the header", edited(flip, 3)),
        ("byte zeroed", edited(put(0))),
        ("byte set to ff", edited(put(0xFF))),
        ("end marker amid the pixels", edited(put(0xFF, 0xD9))),
        ("restart marker amid the pixels", edited(put(0xFF, 0xD3))),
        ("application marker amid the pixels", edited(put(0xFF, 0xE1))),
        ("bytes inserted", edited(insert)),
        ("bytes deleted", edited(delete)),
        ("segment cut off after the pixels", data[:-2] + b"\xff\xfe\0\x40comment"),
    ]


def test_agrees_with_tensorflow_on_damaged_jpegs(tf: Any) -> None:
    rnd = random.Random(7)
    verdicts = {True: 0, False: 0}
    wrong = []
    for number, jpeg in enumerate(samples(100, 7)):
        for _ in range(2):
            for kind, damaged in damages(jpeg, rnd):
                verdict = tensorflow_accepts(tf, damaged)
                verdicts[verdict] += 1
                if accepts(damaged) is not verdict:
                    wrong.append((number, kind, verdict))
    assert not wrong
    assert min(verdicts.values()) > 1000


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_every_cut_and_every_zero_tail(tf: Any, options: dict[str, Any]) -> None:
    jpeg = encoded(picture(size=(24, 16)), quality=20, **options)
    for place in range(len(jpeg)):
        cut, zeroed = jpeg[:place], jpeg[:place] + bytes(len(jpeg) - place)
        assert accepts(cut) is tensorflow_accepts(tf, cut)
        assert not accepts(zeroed)
        assert not tensorflow_accepts(tf, zeroed)
        # The last byte alone may be missing, by an accident of TensorFlow's.
        assert place == len(jpeg) - 1 or not accepts(cut)


def test_every_frame_header(tf: Any) -> None:
    jpeg = encoded(picture(size=(32, 32)), quality=20)
    frame = jpeg.index(b"\xff\xc0")
    changed = [jpeg[: frame + 1] + bytes([marker]) + jpeg[frame + 2 :] for marker in range(256)]
    for place in range(frame + 2, frame + 19):
        changed += [
            jpeg[:place] + bytes([value]) + jpeg[place + 1 :] for value in (*range(18), 0x22, 0xFF)
        ]
    wrong = [data for data in changed if accepts(data) is not tensorflow_accepts(tf, data)]
    assert not wrong


def test_every_sampling(tf: Any) -> None:
    factors = [across << 4 | down for across in range(1, 5) for down in range(1, 5)]
    verdicts = {True: 0, False: 0}
    for luma in factors:
        for chroma in factors:
            sampling = bytes([luma, chroma, 0x11])
            jpeg = jpeg_header(50, 40, sampling=sampling) + scan(3, b"\0\x3f\0") + b"\xff\xd9"
            verdict = tensorflow_accepts(tf, jpeg)
            verdicts[verdict] += 1
            assert accepts(jpeg) is verdict
    assert min(verdicts.values()) > 50


def test_corpus() -> None:
    corpus = os.environ.get("IMAGENET_CONVERT_CORPUS")
    if not corpus:
        pytest.skip("IMAGENET_CONVERT_CORPUS does not name the folder of odd images")
    folder = Path(corpus, "jpeg")
    verdicts = {"accept": True, "reject": False}
    wrong = []
    with open(folder / "EXPECTED.tsv", encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    for row in rows:
        verdict = accepts(Path(folder, row["file"]).read_bytes())
        if verdict is not verdicts.get(row["tensorflow_decode_jpeg"], verdict):
            wrong.append(row["file"])
    assert not wrong
    assert len(rows) > 200


@pytest.mark.parametrize(
    ("format_name", "mode", "options"),
    [("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")]
    + [("BMP", mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA")]
    + [("GIF", mode, {}) for mode in ("L", "P")]
    + [("WEBP", mode, {"lossless": True}) for mode in ("L", "RGB", "RGBA")]
    + [(name, "RGB", {}) for name in ("JPEG", "TIFF", "PPM", "ICO")]
    + [("JPEG", "CMYK", {}), ("JPEG", "L", {})],
)
def test_formats_that_tensorflow_reads(
    tf: Any, format_name: str, mode: str, options: dict[str, Any]
) -> None:
    data = encoded(picture(mode), format_name, **options)
    assert accepts(data) is accepts(data, "header") is tensorflow_accepts(tf, data)
    if accepts(data):
        facts = validate(data, "decode")
        assert facts == validate(data, "header")
        assert (facts.format, facts.width, facts.height) == (format_name, 40, 30)
        if format_name in ("JPEG", "PNG"):
            assert facts.mode == mode
    for place in range(1, len(data), 7) if format_name in ("PNG", "BMP") else ():
        assert accepts(data[:place]) is tensorflow_accepts(tf, data[:place])


def test_broken_png_chunks(tf: Any) -> None:
    png = encoded(picture(), "PNG", icc_profile=b"profile" * 20)
    end, profile, pixels = png.index(b"IEND"), png.index(b"iCCP"), png.index(b"IDAT")
    for place in (end - 1, end, end + 5, profile + 1, pixels - 1, pixels + 9, len(png) - 1):
        broken = png[:place] + b"\x03" + png[place + 1 :]
        assert not accepts(broken)
        assert not tensorflow_accepts(tf, broken)


def test_metadata_fails_no_image(tf: Any) -> None:
    jpeg, png = encoded(picture()), encoded(picture(), "PNG", icc_profile=b"profile" * 20)
    profile = png.index(b"iCCP") + 4
    troubled = [
        with_segments(jpeg, segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff junk")),
        with_segments(jpeg, segment(0xE1, b"Exif\0\0")),
        with_segments(jpeg, segment(0xE2, b"ICC_PROFILE\0"), segment(0xE2, b"ICC_PROFILE\0\1")),
        with_segments(jpeg, segment(0xE2, b"MPF\0junk")),
        with_segments(jpeg, segment(0xED, b"Photoshop 3.0\0008BIM")),
        with_segments(jpeg, segment(0xE0, b"JFIF\0"), segment(0xEE, b"Adobe"), b"\xff\xfe\0\2"),
        with_segments(
            jpeg, b"\xff\x01", b"\xff\xff\xff\xe5\0\0", b"junk \xff\0", segment(0xEF, b"")
        ),
        png[:profile] + b"junk" + png[profile + 4 :],
    ]
    for data in troubled:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert validate(data, "decode") == validate(data, "header")
        assert tensorflow_accepts(tf, data)


def test_what_the_header_level_sees() -> None:
    jpeg = encoded(picture("L", (33, 21)))
    assert validate(jpeg[:-200], "header") == ImageFacts("JPEG", "L", 33, 21)
    start = jpeg.index(b"\xff\xda")
    assert not any(accepts(jpeg[:place], "header") for place in range(start))
    with pytest.raises(ValueError, match="level"):
        validate(jpeg, "off")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (bytes(5000), "begins with 00 00"),
        (b"<!DOCTYPE html>", "begins with 3c 21 44"),
        (encoded(picture())[:-300], "ends before the last pixel"),
        (encoded(picture())[:-2] + bytes(100), "turns into zeros"),
        (encoded(picture())[:100], "ends inside the JPEG header"),
        (jpeg_header(65000, 65000) + scan(3, b"\0\x3f\0") + b"\xff\xd9", "65000 x 65000"),
        (jpeg_header(23171, 23171, 1) + scan(1, b"\0\x3f\0") + b"\xff\xd9", "23171 x 23171"),
        (jpeg_header(65501, 1) + scan(3, b"\0\x3f\0") + bytes(9999) + b"\xff\xd9", "65501 x 1"),
    ],
)
def test_reasons(tf: Any, data: bytes, reason: str) -> None:
    with pytest.raises(CorruptImage, match=reason):
        validate(data, "decode")
    assert not tensorflow_accepts(tf, data)


BOMBS = {
    "huge": jpeg_header(65000, 65000) + scan(3, b"\0\x3f\0") + b"\xff\xd9",
    "huge and progressive": jpeg_header(13000, 13000, 3, 0xC2) + scan(3, bytes(3)) + b"\xff\xd9",
    "large and in one scan": jpeg_header(13000, 13000) + scan(3, b"\0\x3f\0") + b"\xff\xd9",
    "many scans": (
        jpeg_header(2500, 2500, 1, 0xC2)
        + scan(1, bytes(3))
        + scan(1, b"\1\x3f\0") * 50_000
        + b"\xff\xd9"
    ),
    "PNG": (
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in (
                (b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 6, 0, 0, 0)),
                (b"IDAT", zlib.compress(bytes(10_000_000))),
                (b"IEND", b""),
            )
        )
    ),
    "GIF": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0)
    + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\2\1\0\0;",
}  # fmt: skip

MEASURED = """
import resource, sys
from converter.images import CorruptImage, validate
data = sys.stdin.buffer.read()
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    validate(data, "decode")
    print("accepted", end=" ")
except CorruptImage:
    print("refused", end=" ")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
assert "tensorflow" not in sys.modules
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_found_within_the_memory_of_a_worker(name: str) -> None:
    pytest.importorskip("resource")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", MEASURED],
        input=BOMBS[name],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert run.stderr == b""
    verdict, grown = run.stdout.split()
    # Of one scan, only a row of blocks is kept at a time, so that one is as good as any other.
    assert verdict == (b"accepted" if name == "large and in one scan" else b"refused")
    assert int(grown) < 64 << 20


@pytest.mark.parametrize(
    "error", [SyntaxError, struct.error, ValueError, OSError, MemoryError, RecursionError,
              Image.DecompressionBombError, IndexError, KeyError, ZeroDivisionError]
)  # fmt: skip
def test_whatever_pillow_raises_is_a_corrupt_image(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("first line\nsecond \u3042")

    jpeg, gif = encoded(picture()), encoded(picture("P"), "GIF")
    monkeypatch.setattr(Image, "frombytes", fail)
    monkeypatch.setattr(Image, "open", fail)
    assert not accepts(jpeg)
    assert not accepts(gif)


def test_ctrl_c_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Image, "frombytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        validate(encoded(picture()), "decode")


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.sampled_from([*images._JUDGES, encoded(picture())[:200], encoded(picture("P"), "GIF")[:20]]),
    st.binary(max_size=300),
    st.sampled_from(["decode", "header"]),
)
def test_junk_raises_nothing_else(start: bytes, junk: bytes, level: str) -> None:
    accepts(start + junk, level)


def test_truncated_images_are_refused_though_tfds_allows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert not accepts(encoded(picture())[:-300])


def test_corrupt_image_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(CorruptImage("the image is empty")))
    assert isinstance(error, CorruptImage)
    assert error.args == ("the image is empty",)
    facts = ImageFacts("JPEG", "RGB", 1, 2)
    assert pickle.loads(pickle.dumps(facts)) == facts
