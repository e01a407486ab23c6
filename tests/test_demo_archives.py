"""The miniature ImageNet: official layout, the odd images, natural sizes, the same bytes always."""

from __future__ import annotations

import errno
import hashlib
import io
import re
import statistics
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from converter import osal
from converter.demo import DemoArchives, DemoSize, make_archives
from converter.errors import OutputError, UsageError
from converter.imagenet import CMYK_IMAGES, EXAMPLES, PNG_IMAGES, parse_image_name, wnids

TINY: dict[str, Any] = {"width": 32, "height": 24, "mean_bytes": 1000}
CLASSES = 240  # holds the PNG and two of the CMYK images


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:") as tar:
        found = {}
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            assert info.name not in found
            found[info.name] = file.read()
        return found


def train_images(archives: DemoArchives) -> Iterator[tuple[str, dict[str, bytes]]]:
    with tarfile.open(archives.train, "r:") as outer:
        for info in outer:
            with tarfile.open(fileobj=outer.extractfile(info), mode="r:") as inner:
                files = {member.name: inner.extractfile(member) for member in inner}
                yield info.name, {name: file.read() for name, file in files.items() if file}


def all_images(archives: DemoArchives) -> dict[str, bytes]:
    images = {name: data for _, found in train_images(archives) for name, data in found.items()}
    images |= members(archives.validation)
    return images | (members(archives.test) if archives.test else {})


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> DemoArchives:
    size = DemoSize(2, validation=7, test=3, classes=CLASSES, distinct=30, **TINY)
    return make_archives(tmp_path_factory.mktemp("tiny"), size)


def test_train_is_a_tar_of_class_tars(archives: DemoArchives) -> None:
    classes = dict(train_images(archives))
    assert archives.train.name == "ILSVRC2012_img_train.tar"
    assert list(classes) == [f"{wnid}.tar" for wnid in wnids()[:CLASSES]]
    for tar, images in classes.items():
        assert len(images) == 2
        assert list(images) == sorted(images)
        assert all(re.fullmatch(tar[:9] + r"_[1-9]\d*\.JPEG", name) for name in images)


def test_the_other_archives_are_flat_and_numbered_from_one(archives: DemoArchives) -> None:
    assert archives.test is not None
    assert archives.validation.name == "ILSVRC2012_img_val.tar"
    assert archives.test.name == "ILSVRC2012_img_test.tar"
    for path, prefix, count in ((archives.validation, "val", 7), (archives.test, "test", 3)):
        expected = [f"ILSVRC2012_{prefix}_{number:08d}.JPEG" for number in range(1, count + 1)]
        assert list(members(path)) == expected


def test_headers_are_plain(archives: DemoArchives) -> None:
    for path in (archives.train, archives.validation):
        assert path.stat().st_size % tarfile.RECORDSIZE == 0
        with tarfile.open(path, "r:") as tar:
            for info in tar:
                assert (info.type, info.mode, info.uid, info.gid) == (tarfile.REGTYPE, 0o644, 0, 0)
                assert (info.mtime, info.pax_headers) == (1_339_545_600, {})


def test_counts_are_those_of_the_archives(archives: DemoArchives) -> None:
    images = all_images(archives)
    assert archives.images == len(images) == CLASSES * 2 + 7 + 3
    assert archives.bytes == sum(map(len, images.values()))


def test_odd_images_are_what_their_names_say(archives: DemoArchives) -> None:
    images = all_images(archives)
    odd = {name: (image.format, image.mode) for name, image in opened_odd(images).items()}
    cmyk = {"n01739381_1309.JPEG", "n02077923_14822.JPEG"}
    assert odd == dict.fromkeys(cmyk, ("JPEG", "CMYK")) | {"n02105855_2933.JPEG": ("PNG", "RGBA")}


def opened_odd(images: dict[str, bytes]) -> dict[str, Image.Image]:
    found = {name: opened(data) for name, data in images.items()}
    return {
        name: image
        for name, image in found.items()
        if image.format != "JPEG" or image.mode not in ("RGB", "L")
    }


def test_a_thousand_classes_hold_every_odd_image(tmp_path: Path) -> None:
    made = make_archives(tmp_path, DemoSize(1, validation=1, test=0, distinct=5, **TINY))
    assert set(opened_odd(all_images(made))) == CMYK_IMAGES | PNG_IMAGES


def test_odd_images_can_be_left_out(tmp_path: Path) -> None:
    size = DemoSize(2, validation=1, test=0, classes=CLASSES, odd_images=False, distinct=5, **TINY)
    images = all_images(make_archives(tmp_path, size))
    assert not images.keys() & (CMYK_IMAGES | PNG_IMAGES)
    assert not opened_odd(images)


def test_a_validation_archive_of_real_length_holds_its_cmyk_image(tmp_path: Path) -> None:
    size = DemoSize(1, validation=19_878, test=0, classes=1, distinct=3, **TINY)
    made = make_archives(tmp_path, size)
    with tarfile.open(made.validation, "r:") as tar:
        files = [tar.extractfile(info) for info in tar.getmembers()[-3:]]
        last = [file.read() for file in files if file]
    assert [opened(data).mode for data in last] == [
        "RGB",
        "CMYK",
        "RGB",
    ]


def test_every_name_is_official(archives: DemoArchives) -> None:
    for name in all_images(archives):
        parsed = parse_image_name(name)
        assert parsed is not None
        assert parsed.canonical == name


def test_bytes_depend_on_nothing_but_the_size(tmp_path: Path) -> None:
    size = DemoSize(1, validation=9, test=2, classes=CLASSES, distinct=23, **TINY)
    for folder, workers in (("one", 1), ("again", 1), ("two", 2)):
        make_archives(tmp_path / folder, size, workers=workers)
    assert digests(tmp_path / "one") == digests(tmp_path / "again") == digests(tmp_path / "two")
    other = DemoSize(1, validation=9, test=2, classes=CLASSES, distinct=23, seed=1, **TINY)
    make_archives(tmp_path / "other", other)
    before, after = digests(tmp_path / "one"), digests(tmp_path / "other")
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_pictures_that_repeat_are_other_bytes_and_decode(tmp_path: Path) -> None:
    size = DemoSize(12, validation=12, test=0, classes=1, odd_images=False, distinct=6, **TINY)
    images = list(all_images(make_archives(tmp_path, size)).values())
    assert len(set(images)) == 24
    pixels = [opened(data).tobytes() for data in images]
    assert len(set(pixels)) == 6
    assert pixels == pixels[:6] * 4


def test_without_distinct_no_picture_repeats(tmp_path: Path) -> None:
    size = DemoSize(5, validation=4, test=3, classes=2, distinct=None, **TINY)
    images = all_images(make_archives(tmp_path, size))
    assert len({opened(data).tobytes() for data in images.values()}) == 17


def test_lengths_and_shapes_are_those_of_photographs(tmp_path: Path) -> None:
    size = DemoSize(40, validation=1, test=0, classes=1, odd_images=False, distinct=None)
    images = list(all_images(make_archives(tmp_path, size)).values())
    lengths = sorted(map(len, images))
    assert statistics.mean(lengths) == pytest.approx(110_000, rel=0.15)
    assert lengths[2] < 55_000 < 165_000 < lengths[-3]
    assert lengths[0] > 2_000
    assert lengths[-1] < 2_000_000
    shapes = [opened(data).size for data in images]
    assert (statistics.median(x for x, _ in shapes), statistics.median(y for _, y in shapes)) == (
        500,
        375,
    )
    assert len(set(shapes)) > 3


def test_kinds_of_jpeg_have_their_shares(tmp_path: Path) -> None:
    size = DemoSize(400, validation=1, test=0, classes=1, odd_images=False, distinct=None, **TINY)
    images = [opened(data) for data in all_images(make_archives(tmp_path, size)).values()]

    def share(kind: str) -> float:
        return sum(kind in image.info for image in images) / len(images)

    assert sum(image.mode == "L" for image in images) / 401 == pytest.approx(0.025, abs=0.005)
    assert share("progressive") == pytest.approx(0.015, abs=0.005)
    assert share("icc_profile") == pytest.approx(0.28, abs=0.02)
    assert share("exif") == pytest.approx(0.06, abs=0.01)
    subsampled = [image.layer[0][1:3] == (2, 2) for image in images if image.mode == "RGB"]  # type: ignore[attr-defined]
    assert 0.8 < statistics.mean(subsampled) < 0.95


def test_pictures_have_the_spectrum_of_natural_images(tmp_path: Path) -> None:
    """The amplitude falls with about 1/f (D. Field, 1987: exponents from 0.8 to 1.5)."""
    size = DemoSize(6, validation=1, test=0, classes=1, odd_images=False, distinct=None)
    for data in all_images(make_archives(tmp_path, size)).values():
        image = np.asarray(opened(data).convert("L"), dtype=np.float64)
        edge = min(image.shape)
        square = image[:edge, :edge] * np.outer(np.hanning(edge), np.hanning(edge))
        amplitude = np.abs(np.fft.fft2(square))[: edge // 2, : edge // 2]
        y, x = np.indices(amplitude.shape)
        ring = np.hypot(x, y).astype(int)
        rings = range(4, edge // 4)
        fall = [float(np.log(amplitude[ring == radius].mean())) for radius in rings]
        slope = np.polyfit(np.log(rings), fall, 1)[0]
        assert -1.8 < slope < -0.7


def test_existing_archives_are_never_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "ILSVRC2012_img_test.tar"
    precious.write_bytes(b"downloaded for a week")
    with pytest.raises(OutputError, match=r"img_test\.tar exists"):
        make_archives(tmp_path, DemoSize(1, validation=1, test=0, classes=1, **TINY))
    assert digests(tmp_path) == {
        precious.name: hashlib.sha256(b"downloaded for a week").hexdigest()
    }


def test_a_failure_leaves_no_archive_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(osal, "replace", full)
    with pytest.raises(OutputError, match=r"cannot write .*img_train\.tar"):
        make_archives(tmp_path, DemoSize(1, validation=1, test=0, classes=1, **TINY))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("images_per_class", 0),
        ("classes", 1001),
        ("validation", EXAMPLES["validation"] + 1),
        ("test", -1),
        ("width", 7),
        ("height", 0),
        ("mean_bytes", 0),
        ("seed", -1),
        ("distinct", 0),
    ],
)
def test_sizes_out_of_range_are_named(name: str, value: int) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=f"^{name} is {value};"):
        DemoSize(**wrong)


def test_the_default_size_counts_its_images() -> None:
    assert DemoSize().images == 3 * 1000 + 500 + 200
