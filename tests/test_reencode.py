"""Images that TFDS re-encodes: the same bytes, with and without TensorFlow."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from converter import odd_images, reencode
from converter.imagenet import label_of_wnid
from converter.images import CorruptImage, ImageFacts, validate
from converter.index import Index
from converter.reencode import CMYK_TO_RGB, PNG_TO_JPEG, by_pillow, by_tensorflow
from converter.scan import ROW
from converter.sources.base import SourceFile
from tests.world import stay_in_this_process

ADOBE = b"\xff\xee\x00\x0eAdobe"


def picture(mode: str, rng: np.random.Generator) -> Image.Image:
    """Noise, a smooth picture or hard edges, of any small size."""
    height, width = rng.integers(1, 120, 2)
    bands = len(mode)
    y, x = np.mgrid[:height, :width]
    kinds = [
        rng.integers(0, 256, (height, width, bands)),
        np.stack([100 * np.sin(x / (5 + n)) * np.cos(y / (9 + n)) + 128 for n in range(bands)], -1),
        np.kron(rng.integers(0, 256, (height // 5 + 1, width // 5 + 1, bands)), np.ones((5, 5, 1))),
    ]
    values = kinds[rng.integers(len(kinds))][:height, :width]
    return Image.fromarray(values.astype(np.uint8), mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def without_adobe(data: bytes) -> bytes:
    start = data.index(ADOBE)
    return data[:start] + data[start + 16 :]


def as_ycck(data: bytes) -> bytes:
    """Returns the same bits, said to be YCCK instead of CMYK."""
    transform = data.index(ADOBE) + 15
    return data[:transform] + b"\x02" + data[transform + 1 :]


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("seed", range(40))
def test_pillow_makes_the_bytes_of_tfds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    quality = int(rng.integers(1, 101))
    cmyk = encoded(
        picture("CMYK", rng), "JPEG", quality=quality, subsampling=0, progressive=bool(seed % 2)
    )
    for data in (cmyk, without_adobe(cmyk), as_ycck(cmyk)):
        converted = by_pillow(CMYK_TO_RGB, data)
        assert converted == by_tensorflow(CMYK_TO_RGB, data)
    for mode in ("RGB", "RGBA"):
        png = encoded(picture(mode, rng), "PNG")
        assert by_pillow(PNG_TO_JPEG, png) == by_tensorflow(PNG_TO_JPEG, png)


@pytest.mark.usefixtures("tf")
def test_the_known_answer_is_that_of_tensorflow() -> None:
    answer = by_tensorflow(CMYK_TO_RGB, reencode.known_question())
    assert by_pillow(CMYK_TO_RGB, reencode.known_question()) == answer
    assert validate(answer, "decode") == ImageFacts("JPEG", "RGB", 83, 61)


def test_this_pillow_gives_the_known_answer() -> None:
    """The wheels of all systems carry a libjpeg that does."""
    answer = by_pillow(CMYK_TO_RGB, reencode.known_question())
    assert answer
    assert hashlib.sha256(answer).hexdigest() == reencode._KNOWN_ANSWER


def uncertain() -> list[tuple[str, str, bytes]]:
    rng = np.random.default_rng(5)
    cmyk = encoded(picture("CMYK", rng), "JPEG", subsampling=0)
    subsampled = encoded(picture("CMYK", rng), "JPEG", subsampling=2)
    start = cmyk.index(ADOBE)
    short = cmyk[:start] + b"\xff\xee\x00\x07Adobe" + cmyk[start + 16 :]
    gray = encoded(picture("RGB", rng).convert("L"), "PNG")
    deep = encoded(Image.fromarray(rng.integers(0, 1 << 16, (9, 9)).astype(np.uint16)), "PNG")
    return [
        ("subsampled", CMYK_TO_RGB, subsampled),
        ("short Adobe segment", CMYK_TO_RGB, short),
        ("no CMYK", CMYK_TO_RGB, encoded(picture("RGB", rng), "JPEG")),
        ("gray", PNG_TO_JPEG, gray),
        ("16 bits", PNG_TO_JPEG, deep),
        ("palette", PNG_TO_JPEG, encoded(picture("RGB", rng).convert("P"), "PNG")),
    ]


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize(("name", "conversion", "data"), uncertain())
def test_what_is_not_certain_is_left_to_tensorflow(name: str, conversion: str, data: bytes) -> None:
    assert by_pillow(conversion, data) is None, name
    assert validate(by_tensorflow(conversion, data), "decode").mode == "RGB"


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("conversion", [CMYK_TO_RGB, PNG_TO_JPEG])
def test_junk_is_refused(conversion: str) -> None:
    assert by_pillow(conversion, b"junk") is None
    with pytest.raises(CorruptImage, match="cannot decode"):
        by_tensorflow(conversion, b"junk")


def test_another_libjpeg_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    png = encoded(picture("RGB", np.random.default_rng(3)), "PNG")
    monkeypatch.setattr(reencode, "_KNOWN_ANSWER", "0" * 64)
    reencode._gives_known_answer.cache_clear()
    try:
        assert by_pillow(PNG_TO_JPEG, png) is None
    finally:
        reencode._gives_known_answer.cache_clear()


@pytest.mark.usefixtures("tf")
@pytest.mark.skipif(
    "IMAGENET_CONVERT_CORPUS" not in os.environ, reason="IMAGENET_CONVERT_CORPUS is not set"
)
def test_odd_cmyk_images_of_others() -> None:
    certain = 0
    for path in sorted(Path(os.environ["IMAGENET_CONVERT_CORPUS"]).rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        if not data.startswith(b"\xff\xd8\xff"):
            continue
        converted = by_pillow(CMYK_TO_RGB, data)
        if converted is not None:
            certain += 1
            assert converted == by_tensorflow(CMYK_TO_RGB, data), path
    assert certain >= 3


@pytest.mark.usefixtures("tf")
def test_both_ways_lead_into_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image is certain, one is for TensorFlow, one is junk and stays."""
    stay_in_this_process(monkeypatch)
    rng = np.random.default_rng(8)
    data = {
        "n01739381_1309.JPEG": encoded(picture("CMYK", rng), "JPEG", subsampling=0),
        "n02077923_14822.JPEG": encoded(picture("CMYK", rng), "JPEG", subsampling=2),
        "n02105855_2933.JPEG": b"junk",
    }
    (tmp_path / "source").write_bytes(b"".join(data.values()))
    rows, offset = [], 0
    for name, image in data.items():
        wnid, number = name.removesuffix(".JPEG").split("_")
        rows.append((label_of_wnid()[wnid], int(number), 0, offset, len(image)))
        offset += len(image)
    source = SourceFile.of(str(tmp_path / "source"))
    index = Index((source,), {"train": np.array(rows, ROW)}, ())
    made = odd_images.convert_odd_images(index, tmp_path / "converted", 2)
    for row, name in enumerate(list(data)[:2]):
        at = made.splits["train"][row]
        path = Path(made.files[at["file"]].path)
        assert path == tmp_path / "converted" / name
        assert path.read_bytes() == by_tensorflow(CMYK_TO_RGB, data[name])
        assert (at["offset"], at["size"]) == (0, path.stat().st_size)
    assert made.splits["train"][2] == index.splits["train"][2]
