"""Imperfect archives: each ends in the right dataset or in a clear refusal, never in a wrong one.

The rows are those of the README's table; what TFDS does with them is said there.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter import convert
from converter.cli import app
from converter.imagenet import numbered_name, wnids
from tests.system import not_on_windows
from tests.tarmaker import BLOCK, flip, header_of, nested, tar, zero
from tests.world import (
    CLASSES,
    INCOMPLETE,
    MIDDLE,
    TEST,
    TRAIN,
    VAL,
    World,
    in_this_process,
    jpeg,
    world,
)

__all__ = ["in_this_process", "world"]  # fixtures


APPLE = ("._" + MIDDLE, b"\0\5\x16\7" + bytes(60))
README = ("README.txt", b"read me")


@pytest.mark.parametrize(
    "val",
    [
        tar(VAL, prefix="val/", folders=True),
        tar([*VAL, (".DS_Store", b"\0\0\0\1Bud1")], prefix="val/", folders=True),
        tar(VAL, prefix="./", folders=True),
        tar([VAL[0], APPLE, *VAL[1:]]),
        tar([("AAA.txt", b"text"), *VAL]),
        tar(list(reversed(VAL))),
        tar(VAL, end=False),
        tar(VAL, prefix="d" * 120 + "/", tar_format=tarfile.GNU_FORMAT),
        tar(VAL, prefix="\u5199\u771f/", tar_format=tarfile.PAX_FORMAT),
        tar([(name.lower().replace(".jpeg", ".jpg"), data) for name, data in VAL]),
        tar([*VAL, VAL[3]]),
    ],
    ids=[
        "folder",
        "folder+junk",
        "dot-slash",
        "apple-double",
        "stray-text",
        "reversed",
        "no-end",
        "gnu",
        "pax",
        "respelled",
        "doubled",
    ],
)
def test_validation_archives_that_end_in_the_right_dataset(world: World, val: bytes) -> None:
    world.put(val=val)
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    world.assert_right()


@pytest.mark.parametrize(
    "train",
    [
        nested(TRAIN, prefix="train/"),
        nested(TRAIN, extra=[README, ("._n01440764.tar", b"junk")]),
        nested({wnid: [README, *images] for wnid, images in TRAIN.items()}),
        tar((f"{w.upper()}.TAR", tar(images)) for w, images in TRAIN.items()),
        tar((f"{w}.tar", tar(images, prefix=f"{w}/", folders=True)) for w, images in TRAIN.items()),
        tar((f"{w}/{name}", data) for w, images in TRAIN.items() for name, data in images),
        tar((name, data) for images in TRAIN.values() for name, data in images),
        tar((f"{w}.tar", tar(images)) for w, images in [*TRAIN.items(), *list(TRAIN.items())[:1]]),
    ],
    ids=[
        "prefix",
        "stray-outer",
        "stray-inner",
        "upper-case",
        "inner-folder",
        "class-folders",
        "flat",
        "twice",
    ],
)
def test_train_archives_that_end_in_the_right_dataset(world: World, train: bytes) -> None:
    world.put(train=train)
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    world.assert_right()


def cut_inner() -> bytes:
    wnid = CLASSES[1]
    whole = tar(TRAIN[wnid])
    broken = whole[: header_of(whole, TRAIN[wnid][2][0]) + BLOCK + 10]
    return tar((f"{w}.tar", broken if w == wnid else tar(TRAIN[w])) for w in CLASSES)


GOOD_VAL, GOOD_TRAIN = tar(VAL), nested(TRAIN)
AT = header_of(GOOD_VAL, MIDDLE)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("val", GOOD_VAL[: AT + BLOCK + 100], f'last good member is "{VAL[4][0]}"'),
        ("val", flip(GOOD_VAL, AT + 20), f"checksum is wrong at byte {AT}"),
        ("val", zero(GOOD_VAL, AT, AT + 2 * BLOCK), f"a zero-filled hole at byte {AT}"),
        ("val", GOOD_VAL + b"more", "but data follows"),
        ("train", GOOD_TRAIN[: len(GOOD_TRAIN) // 2], "of the archive was readable"),
        ("train", cut_inner(), f"!{CLASSES[1]}.tar"),
        ("train", nested({**TRAIN, "n99999999": TRAIN[CLASSES[0]]}), "this is not ILSVRC2012"),
        ("train", nested({CLASSES[0]: TRAIN[CLASSES[1]]}), "name and class folder or class tar"),
        ("train", nested(TRAIN, extra=[("more.tar", b"x")]), "archives inside the archive"),
        ("val", tar([*VAL, (numbered_name("validation", 50_001), jpeg(1))]), "50001.JPEG at byte"),
        ("val", tar([*VAL, ("ILSVRC2012_val_0000013.JPEG", jpeg(1))]), "not spelled as"),
        ("val", tar([*VAL, ("photo.png", jpeg(1))]), "not spelled as"),
        ("val", tar([*VAL, ("photo", jpeg(1))]), "hold images under another name"),
        ("val", tar([*VAL, (VAL[0][0], jpeg(99))]), "found twice with different bytes"),
    ],
)
def test_archives_that_are_refused_even_when_incomplete_ones_are_not(
    world: World, name: str, data: bytes, said: str
) -> None:
    world.put(**{name: data})
    code, output = world.run(INCOMPLETE)
    assert code == 3
    assert said in output
    assert not world.out.exists()


def test_a_conflicting_double_names_both_places(world: World) -> None:
    data = tar([*VAL, (VAL[0][0], jpeg(99))])
    world.put(val=data)
    places = [BLOCK, data.rindex(jpeg(99)[:200])]
    output = world.run(INCOMPLETE)[1]
    assert all(f"ILSVRC2012_img_val.tar at byte {place}" in output for place in places)


def test_links_under_an_image_name_are_refused(world: World) -> None:
    link = tarfile.TarInfo(numbered_name("validation", 13))
    link.type, link.linkname = tarfile.SYMTYPE, VAL[0][0]
    world.put(val=tar(VAL, end=False) + link.tobuf() + bytes(2 * BLOCK))
    code, output = world.run(INCOMPLETE)
    assert code == 3
    assert "they are not followed" in output


def test_all_that_is_missing_is_listed_not_the_first(world: World) -> None:
    gone = [image for image in VAL if image[0][-7:-5] not in ("04", "05", "09")]
    world.put(val=tar(gone), train=nested({CLASSES[1]: TRAIN[CLASSES[1]]}))
    code, output = world.run()
    assert code == 3
    assert "numbers 4-5, 9, 13-50000" in output
    assert "999 of the 1,000 train classes are missing" in output
    assert f"{CLASSES[1]}: 3 of 1,300" in output
    assert "train: 1,281,164 of 1,281,167" in output
    assert "add --allow-incomplete" in output
    code, output = world.run(INCOMPLETE)
    assert code == 0
    assert "numbers 4-5, 9, 13-50000" in output
    world.assert_right(gone, train=False)


def test_archives_cut_between_members_lack_what_was_cut(world: World) -> None:
    outer = header_of(GOOD_TRAIN, f"{CLASSES[2]}.tar")
    world.put(val=GOOD_VAL[:AT], train=GOOD_TRAIN[:outer])
    code, output = world.run()
    assert code == 3
    assert "numbers 6-50000" in output
    assert "998 of the 1,000 train classes are missing" in output
    listed = CliRunner().invoke(app, ["inspect", "--source", str(world.source)]).output
    assert all(wnid in listed for wnid in wnids()[2:])
    assert world.run(INCOMPLETE, "--splits", "validation")[0] == 0
    world.assert_right(VAL[:5], train=False)


def test_a_missing_split_is_named(world: World) -> None:
    (world.source / "ILSVRC2012_img_val.tar").unlink()
    code, output = world.run()
    assert code == 3
    assert "    validation" in output
    assert "--splits" in output
    code, _ = world.run("--splits", "train", INCOMPLETE)
    assert code == 0


def test_the_test_archive_under_its_official_name(world: World) -> None:
    world.put(test_v10102019=tar(TEST, prefix="test/"))
    assert world.run(INCOMPLETE)[0] == 0
    assert world.records("test") == {name: (-1, data) for name, data in TEST}


@pytest.mark.parametrize("junk", [b"", b"junk", jpeg(1)[:-20], jpeg(1)[:-20] + bytes(20)])
def test_corrupt_images(world: World, junk: bytes) -> None:
    world.put(val=tar([*VAL[:5], (MIDDLE, junk), *VAL[6:]]))
    code, output = world.run(INCOMPLETE)
    assert code == 5
    place = header_of(tar(VAL), MIDDLE) + BLOCK
    assert f"{MIDDLE} ({world.source}" in output.replace("\n", "")
    assert f"ILSVRC2012_img_val.tar at byte {place}" in output
    code, output = world.run(INCOMPLETE, "--on-corrupt", "skip")
    assert code == 0
    assert "Corrupt images (skip): 1" in output
    world.assert_right([*VAL[:5], *VAL[6:]])
    assert world.run(INCOMPLETE, "--on-corrupt", "keep", "--restart")[0] == 0
    world.assert_right([*VAL[:5], (MIDDLE, junk), *VAL[6:]])


@not_on_windows("open files have no such limit")
def test_few_open_files(world: World) -> None:

    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = [sys.executable, "-m", "converter", "--source", str(world.source)]
    result = subprocess.run(
        [*command, "--out", str(world.out), INCOMPLETE, "--workers", "2"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    world.assert_right()


def test_a_whole_validation_split_that_lacks_one_image(tmp_path: Path) -> None:
    """The row that this converter exists for: TFDS gives 24,978 of 49,999 images a wrong label."""
    world = World(tmp_path)
    data = jpeg(7)
    images = [(numbered_name("validation", n), data) for n in range(1, 50_001) if n != 25_000]
    world.put(val=tar(images))
    code, output = world.run("--splits", "validation")
    assert code == 3
    assert "validation: 1 of 50,000, numbers 25000" in output
    code, output = world.run("--splits", "validation", INCOMPLETE, "--validate", "off")
    assert code == 0, output
    world.assert_right(images, train=False)
    world.put(val=tar([*images, (numbered_name("validation", 25_000), data)]))
    report = convert(
        world.source / "ILSVRC2012_img_val.tar",
        tmp_path / "other",
        splits=["validation"],
        dry_run=True,
    )
    assert report.splits["validation"].complete
