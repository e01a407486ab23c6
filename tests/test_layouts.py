"""Whatever the layout of the same images, the same SHA256SUMS; what is not sure is not taken."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter import odd_images
from converter.cli import app
from converter.imagenet import numbered_name, train_name, wnids
from converter.sources.names import is_patch
from tests.system import WINDOWS, not_on_windows
from tests.tarmaker import JUNK, nested, tar
from tests.world import (
    CLASSES,
    INCOMPLETE,
    TEST,
    TRAIN,
    VAL,
    World,
    in_class_folders,
    in_this_process,
    jpeg,
    kaggle,
    sorted_val,
    stay_in_this_process,
    world,
    write,
)
from tests.zipmaker import zipped

__all__ = ["in_this_process", "world"]  # fixtures

CLASS_TARS = [(f"{wnid}.tar", tar(images)) for wnid, images in TRAIN.items()]
JPG = [(name.replace(".JPEG", ".jpg"), data) for name, data in in_class_folders(TRAIN)]
Layout = Callable[[Path], None]
LAYOUTS: dict[str, Layout] = {}


def layout(build: Layout) -> Layout:
    LAYOUTS[build.__name__] = build
    return build


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        stay_in_this_process(patch)
        made = World(tmp_path_factory.mktemp("official"))
        assert made.run(INCOMPLETE)[0] == 0
        return made.sums


@layout
def class_tars_and_a_flat_folder(source: Path) -> None:
    write(source / "train", CLASS_TARS)
    write(source / "val", VAL)


@layout
def class_folders_and_sorted_validation(source: Path) -> None:
    write(source, [*in_class_folders(TRAIN, "train/"), *sorted_val("val/")])


@layout
def class_folders_as_such_with_the_tar_of_validation(source: Path) -> None:
    write(source, [*in_class_folders(TRAIN), ("ILSVRC2012_img_val.tar", tar(VAL))])


@layout
def class_folders_and_class_tars_mixed(source: Path) -> None:
    write(source / "train", [*CLASS_TARS[:1], *in_class_folders(TRAIN)[3:], *JUNK])
    write(source / "validation", [*VAL, *JUNK])


@layout
def everything_in_one_flat_folder(source: Path) -> None:
    write(source, [*VAL, *(image for images in TRAIN.values() for image in images)])


@layout
def kaggles_tree(source: Path) -> None:
    write(source, kaggle(test=False))


@layout
def kaggles_tree_below_its_own_name(source: Path) -> None:
    write(source / "imagenet_object_localization_patched2019", kaggle(test=False))


@layout
def kaggles_tree_in_a_tar(source: Path) -> None:
    write(source, [("kaggle.tar", tar(kaggle(test=False)))])


@layout
def train_and_validation_in_one_tar(source: Path) -> None:
    write(source, [("all.tar", tar([*in_class_folders(TRAIN, "./train/"), *sorted_val("./val/")]))])


@layout
def other_suffixes_and_cases(source: Path) -> None:
    write(source / "train", JPG)
    write(source / "val", ((name.lower(), data) for name, data in VAL[:4]))
    write(source / "val", ((name.upper(), data) for name, data in VAL[4:8]))
    write(source / "val", ((name.swapcase(), data) for name, data in VAL[8:]))


@layout
def upper_case_class_folders(source: Path) -> None:
    write(source / "TRAIN", ((name.upper(), data) for name, data in in_class_folders(TRAIN)))
    write(source / "VAL", VAL)


@layout
def class_folders_in_class_folders(source: Path) -> None:
    for wnid, images in TRAIN.items():
        write(source / "train" / wnid / wnid, images)
    write(source / "val", VAL)


@layout
def official_archives_beside_what_was_unpacked_from_them(source: Path) -> None:
    write(source, [("ILSVRC2012_img_train.tar", nested(TRAIN))])
    write(source, [("ILSVRC2012_img_val.tar", tar(VAL))])
    write(source, [*in_class_folders(TRAIN, "train/"), *sorted_val("val/")])


@layout
def the_train_tar_left_beside_its_class_tars(source: Path) -> None:
    write(source / "train", [("ILSVRC2012_img_train.tar", nested(TRAIN)), *CLASS_TARS])
    write(source / "val", VAL)


@layout
def linked_folders_and_images(source: Path) -> None:
    elsewhere = write(source.parent / "elsewhere", in_class_folders(TRAIN))
    (source / "train").mkdir()
    for wnid in CLASSES[:2]:
        (source / "train" / wnid).symlink_to(elsewhere / wnid)
    (source / "train" / CLASSES[2]).mkdir()
    for name, _ in TRAIN[CLASSES[2]]:
        (source / "train" / CLASSES[2] / name).symlink_to(elsewhere / CLASSES[2] / name)
    write(source.parent / "pictures", VAL)
    (source / "val").symlink_to("../pictures")


@layout
def links_that_lead_back(source: Path) -> None:
    write(source, [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", data) for n, data in VAL)])
    (source / "train" / CLASSES[0] / CLASSES[0]).symlink_to("../../train/" + CLASSES[0])
    (source / "train" / "train").symlink_to("..")
    (source / "val" / "data").symlink_to(source)


@layout
def kaggles_zip(source: Path) -> None:
    write(source, [("imagenet-object-localization-challenge.zip", zipped(kaggle(test=False)))])


@layout
def a_deflated_zip_that_was_streamed(source: Path) -> None:
    members = [*in_class_folders(TRAIN, "a/b/train/"), *sorted_val("a/b/val/"), *JUNK]
    write(source, [("mine.zip", zipped(members, deflate=True, streamed=True))])


@layout
def a_zip_of_the_official_tars(source: Path) -> None:
    members = [
        ("x/ILSVRC2012_img_train.tar", nested(TRAIN)),
        ("x/ILSVRC2012_img_val.tar", tar(VAL)),
    ]
    write(source, [("tars.zip", zipped(members))])


@layout
def a_zip_of_class_tars_and_one_of_images(source: Path) -> None:
    write(source, [("train.zip", zipped(CLASS_TARS, zip64=True))])
    write(source, [("val.zip", zipped(VAL, deflate=True, folders=("val/",)))])


@layout
def a_zip_under_the_name_of_the_tar(source: Path) -> None:
    write(source, [("ILSVRC2012_img_train.tar", zipped(in_class_folders(TRAIN)))])
    write(source, [("ILSVRC2012_img_val.tar", zipped(VAL))])


@pytest.mark.parametrize("name", [name for name in LAYOUTS if not (WINDOWS and "linked" in name)])
def test_the_layout_does_not_matter(world: World, official: str, name: str) -> None:
    LAYOUTS[name](world.empty())
    before = tree(world.source)
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    assert world.sums == official
    assert tree(world.source) == before
    world.assert_right()


def tree(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found.append((str(path), status.st_size, status.st_mtime_ns))
    return found


def test_partial_sources_of_one_split_are_joined(world: World, official: str) -> None:
    source = world.empty()
    first = write(source / "here", in_class_folders({w: TRAIN[w] for w in CLASSES[:1]}))
    second = write(source / "there", [("mine.tar", tar(in_class_folders(TRAIN)[3:6]))])
    third = write(source / "third", [*CLASS_TARS[2:], *VAL[:5]])
    fourth = write(source / "fourth", VAL[5:])
    sources = [fourth, first, second, third]
    code, said = world.run(INCOMPLETE, sources=sources)
    assert code == 0, said
    assert world.sums == official


def test_the_same_image_in_two_sources(world: World, official: str) -> None:
    source = world.empty()
    one = write(source / "one", [*in_class_folders(TRAIN), *VAL])
    two = write(source / "two", [("n01440764.tar", tar(TRAIN["n01440764"])), *VAL[:3]])
    code, said = world.run(INCOMPLETE, sources=[one, two])
    assert code == 0, said
    assert "6 images found twice with identical bytes" in said
    assert world.sums == official
    shutil.rmtree(world.out)
    other = two / VAL[1][0]
    other.write_bytes(jpeg(201))
    code, said = world.run(INCOMPLETE, sources=[one, two])
    assert code == 3
    assert f"{VAL[1][0]}: {one / VAL[1][0]} and {other}" in said
    assert "found twice with different bytes" in said


def test_names_that_differ_in_case_only_are_one_image(world: World, official: str) -> None:
    source = world.empty()
    write(source, [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", d) for n, d in VAL)])
    write(source / "val", [(VAL[2][0].lower(), VAL[2][1])])
    write(source / "train" / CLASSES[0].upper(), TRAIN[CLASSES[0]][:1])
    if len(list((source / "val").iterdir())) == len(VAL):
        pytest.skip("the file system does not tell cases apart")
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    assert "2 images found twice with identical bytes" in said
    assert world.sums == official
    shutil.rmtree(world.out)
    (source / "val" / VAL[2][0].lower()).write_bytes(jpeg(77))
    code, said = world.run(INCOMPLETE)
    assert code == 3
    assert f"{source}/val/{VAL[2][0].lower()}" in said


@pytest.mark.parametrize("as_folder", [False, True])
def test_the_patch_of_the_test_images_wins(world: World, as_folder: bool) -> None:
    patch = [(TEST[1][0], jpeg(150)), (TEST[2][0], jpeg(151))]
    world.put(test=tar(TEST, prefix="test/"))
    if as_folder:
        write(world.source / "ILSVRC2012_img_test_patch_v10102019", patch)
    else:
        world.put(test_patch_v10102019=tar(patch))
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    assert "2 test images replaced by those of the patch" in said
    assert world.records("test") == {
        name: (-1, data) for name, data in {**dict(TEST), **dict(patch)}.items()
    }


def test_two_sources_in_one_folder_have_to_be_named(world: World, official: str) -> None:
    source = world.empty()
    write(source, [*in_class_folders(TRAIN, "train/"), ("mine.tar", tar(VAL))])
    write(source / "val", VAL)
    code, said = world.run(INCOMPLETE)
    assert code == 3
    assert "holds several archives or folders of the validation split (val, mine.tar)" in said
    code, said = world.run(INCOMPLETE, sources=[source / "train", source / "val"])
    assert code == 0, said
    assert world.sums == official


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a.txt", b"x"), ("cat.jpg", jpeg(1))], "2 other entries, such as a.txt, cat.jpg"),
        ([], "it is empty"),
        ([("n01440764/18.JPEG", jpeg(1))], "no file in its class folder n01440764 is named"),
        ([("copies/n01440764/n01440764_3.JPEG", jpeg(3))], "1 other entries, such as copies"),
        ([("photos/train/n01440764/n01440764_3.JPEG", jpeg(3))], "such as photos"),
        ([("train/cats/1.jpg", jpeg(1)), ("train/dogs/1.jpg", jpeg(2))], "such as cats, dogs"),
    ],
)  # fmt: skip
def test_folders_without_a_name_of_imagenet_are_refused(
    world: World, members: list[tuple[str, bytes]], said: str
) -> None:
    write(world.empty(), members)
    code, output = world.run(INCOMPLETE)
    assert code == 3
    assert "no ImageNet archive found in" in output
    assert said in output
    assert not world.out.exists()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("val/n01440764/" + VAL[0][0], VAL[0][1]), "name and class folder or class tar disagree"),
        (("train/n01440764/" + train_name("n01443537", 5), jpeg(5)), "name and class folder"),
        (("train/n01440764/18.JPEG", jpeg(5)), "not spelled as ILSVRC2012 spells it"),
        (("val/ILSVRC2012_val_13.JPEG", jpeg(5)), "not spelled as ILSVRC2012 spells it"),
        (("val/n01440764_1 (1).JPEG", jpeg(5)), "not spelled as ILSVRC2012 spells it"),
        (("train/n01440764/18", jpeg(5)), "strays that hold images under another name"),
        (("train/n99999999/n99999999_1.JPEG", jpeg(5)), "this is not ILSVRC2012"),
        (("val/" + numbered_name("validation", 60_000), jpeg(5)), "whose number ILSVRC2012"),
        (("train/n01440764.tar", tar(TRAIN["n01440764"])[:2000]), "damaged archive"),
    ],
)
def test_folders_that_are_refused_even_when_incomplete_ones_are_not(
    world: World, extra: tuple[str, bytes], said: str
) -> None:
    write(world.empty(), [*in_class_folders(TRAIN, "train/"), *sorted_val("val/"), extra])
    code, output = world.run(INCOMPLETE)
    assert code == 3
    assert said in output
    assert not world.out.exists()


def test_strays_in_folders_are_reported(world: World, official: str) -> None:
    write(world.empty(), [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", d) for n, d in VAL)])
    write(world.source / "val", [("cat.jpg", jpeg(1)), ("notes.txt", b"x"), ("more.zip", b"PK")])
    write(world.source / "train", [("holiday/1.jpg", jpeg(1)), ("n01440764/.hidden", b"x")])
    write(world.source / "train" / "backup" / "n01440764", TRAIN["n01440764"])
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    assert world.sums == official
    assert "1 images that are not ImageNet's, ignored" in said
    assert "2 files that are no images, ignored" in said
    assert "3 folders and archives under other names, not looked into" in said


@not_on_windows("links need a privilege")
def test_a_link_that_leads_nowhere_under_an_image_name(world: World) -> None:
    write(world.empty(), [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", d) for n, d in VAL)])
    (world.source / "val" / numbered_name("validation", 13)).symlink_to("gone.JPEG")
    code, said = world.run(INCOMPLETE)
    assert code == 3
    assert f"{numbered_name('validation', 13)}: a link that leads nowhere" in said


def test_default_places_take_official_names_only(
    world: World, official: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(world.empty(), [*in_class_folders(TRAIN, "train/"), *VAL, ("mine.tar", tar(VAL))])
    write(world.source, in_class_folders(TRAIN))
    monkeypatch.chdir(world.source)
    result = CliRunner().invoke(app, ["--out", str(world.out), INCOMPLETE])
    assert result.exit_code == 3
    assert "no ImageNet archive found in" in result.output
    write(world.source, kaggle(test=False))
    result = CliRunner().invoke(app, ["--out", str(world.out), INCOMPLETE, "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert world.sums == official


def test_inspect_says_what_everything_was_taken_for(world: World) -> None:
    write(world.source, [("cars.tar", tar([("cars/1.jpg", jpeg(1))])), ("test/a.txt", b"x")])
    write(world.source, in_class_folders(TRAIN, "train/"))
    result = CliRunner().invoke(app, ["inspect", "--source", str(world.source)])
    for said in (
        "ILSVRC2012_img_train.tar: class tars in a tar (train)",
        "ILSVRC2012_img_val.tar: images in a tar (validation)",
        "train: not used, since the official archive of its split is beside it: class folders",
        "cars.tar: not used, a tar whose members (such as cars/1.jpg) are not those",
        "test: not used, nothing directly in it is named as in ImageNet 2012 (1 other entries, ",
    ):
        assert said in result.output
    plain = CliRunner().invoke(app, ["inspect", "--json", "--source", str(world.source)])
    verdicts = {Path(v["path"]).name: v for v in json.loads(plain.stdout)["verdicts"]}
    assert verdicts["ILSVRC2012_img_train.tar"]["source"]["splits"] == ["train"]
    assert verdicts["train"]["source"] is None


def test_one_wrong_source_of_several_is_named_with_what_the_others_are(world: World) -> None:
    wrong = write(world.source.parent / "wrong", [("a.txt", b"x")])
    junk = world.source.parent / "junk.tar"
    junk.write_bytes(b"junk" * 1000)
    code, said = world.run(INCOMPLETE, sources=[world.source, wrong, junk])
    assert code == 3
    assert f"no ImageNet archive found in: {wrong}" in said
    assert f"{junk} is no ImageNet 2012 archive: it is no tar" in said
    assert "ILSVRC2012_img_val.tar: images in a tar (validation)" in said


def test_images_that_tfds_re_encodes_are_read_from_folders(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TRAIN[CLASSES[1]][0][0]
    monkeypatch.setattr(odd_images, "_CONVERSIONS", {name: "any"})
    monkeypatch.setattr(odd_images, "by_pillow", lambda conversion, data: data + b"converted")
    write(world.empty(), [*JPG, *VAL])
    assert world.run(INCOMPLETE, "--validate", "off")[0] == 0
    label, data = world.records("train")[name]
    assert (label, data) == (1, TRAIN[CLASSES[1]][0][1] + b"converted")


def test_corrupt_images_in_folders_are_named_by_their_path(world: World) -> None:
    write(world.empty(), [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", d) for n, d in VAL)])
    (world.source / "val" / VAL[4][0]).write_bytes(b"junk")
    code, said = world.run(INCOMPLETE)
    assert code == 5
    assert f"{VAL[4][0]} ({world.source / 'val' / VAL[4][0]}): " in said
    assert world.run(INCOMPLETE, "--on-corrupt", "skip")[0] == 0
    world.assert_right([*VAL[:4], *VAL[5:]])


@pytest.mark.parametrize("seed", range(12))
def test_half_broken_trees_end_right_or_refused(world: World, official: str, seed: int) -> None:
    """A mixed tree, damaged at random: the right dataset, a smaller right one, or a refusal."""
    rnd = random.Random(seed)
    source = world.empty()
    names = rnd.sample([name for name in sorted(LAYOUTS) if not (WINDOWS and "linked" in name)], 1)
    LAYOUTS[names[0]](source)
    paths = [path for path in sorted(source.rglob("*")) if path.is_file()]
    for _ in range(rnd.randint(1, 3)):
        victim = rnd.choice(paths)
        if not victim.exists():
            continue
        harm(victim, rnd)
    code, said = world.run(INCOMPLETE, "--on-corrupt", "skip")
    assert code in (0, 3), said
    if code == 0:
        assert_subset(world)


def harm(victim: Path, rnd: random.Random) -> None:
    data = victim.read_bytes()
    how = rnd.randrange(6)
    if how == 0:
        victim.unlink()
    elif how == 1:
        victim.write_bytes(data[: rnd.randrange(len(data))])
    elif how == 2:
        victim.rename(victim.with_name(f"{victim.name}.bak"))
    elif how == 3:
        victim.rename(victim.parent.parent / victim.name)
    elif how == 4:
        (victim.parent / f"copy of {victim.name}").write_bytes(data)
    else:
        os.replace(victim, victim.with_suffix(""))


def assert_subset(world: World) -> None:
    """Every record is one of the official ones, under its label."""
    expected = dict(VAL) | {name: data for images in TRAIN.values() for name, data in images}
    labels = {name: label for label, wnid in enumerate(CLASSES) for name, _ in TRAIN[wnid]}
    for split in ("train", "validation"):
        for name, (label, data) in world.records(split).items():
            assert data == expected[name]
            assert labels.get(name, label) == label
    assert wnids()[0] == CLASSES[0]


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("ILSVRC2012_img_test_patch_v10102019.tar", True),
        ("patch_images.tar", True),
        ("test-patch", True),
        ("ILSVRC2012_img_test_patched.tar", False),
        ("imagenet_object_localization_patched2019.tar", False),
        ("dispatch.tar", False),
    ],
)
def test_names_of_a_patch(name: str, yes: bool) -> None:
    assert is_patch(name) == yes
