"""`verify` finds whatever is wrong with a published dataset."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from converter import convert
from converter.demo import DemoSize, make_archives
from converter.errors import CorruptImagesError, VerificationError
from converter.plan import ShardLimits
from converter.readback import ReadTask, label_of_name, read_shard
from converter.records import frame_image
from converter.verify import SplitVerdict, verify
from tests.system import WINDOWS
from tests.world import stay_in_this_process

TINY = DemoSize(
    images_per_class=2, validation=12, test=4, classes=5, width=16, height=16, mean_bytes=700
)
LIMITS = ShardLimits(min_bytes=2000, max_bytes=4000)
SHARD = "imagenet2012-train.tfrecord-00001-of-00004"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    make_archives(folder / "tars", TINY)
    convert(folder / "tars", folder, workers=1, allow_incomplete=True, shard_limits=LIMITS)
    assert (folder / "imagenet2012" / "5.1.0" / SHARD).exists()
    return folder / "imagenet2012" / "5.1.0"


@pytest.fixture
def dataset(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "imagenet2012" / "5.1.0"))


def test_a_sound_dataset(dataset: Path) -> None:
    left = dataset.parent / "incomplete.ABC_5.1.0"
    left.mkdir()
    (left / "bucket_000.tmp").write_bytes(b"x" * 77)
    for folder in (dataset, dataset.parent, dataset.parent.parent):
        verdict = verify(folder, workers=1, decode=folder == dataset)
        verdict.require_sound()
        assert verdict.splits["train"].records == 10
        assert verdict.splits["validation"].records == 12
        assert verdict.leftovers == {str(left): 77}
        assert not verdict.official
        assert "not the complete official ImageNet 2012" in str(verdict)
    whole = {
        "train": SplitVerdict(1_281_167, 1024, 146_999_114_192),
        "validation": SplitVerdict(50_000, 64, 6_711_099_535),
    }
    assert replace(verdict, splits=whole).official
    assert not replace(verdict, splits={"train": whole["train"]}).official


def swap_shards(dataset: Path) -> None:
    other = dataset / SHARD.replace("00001-of", "00002-of")
    shutil.move(dataset / SHARD, dataset / "x")
    shutil.move(other, dataset / SHARD)
    shutil.move(dataset / "x", other)


def edit_info(dataset: Path) -> None:
    path = dataset / "dataset_info.json"
    info = json.loads(path.read_text(encoding="utf-8"))
    info["splits"][0]["shardLengths"][0] = str(int(info["splits"][0]["shardLengths"][0]) + 1)
    path.write_text(json.dumps(info), encoding="utf-8")


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: (d / SHARD).unlink(), f"{SHARD}: cannot be read"),
        (swap_shards, "should stand before those of"),
        (lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes()[:-1]), "ends inside"),
        (lambda d: (d / SHARD).write_bytes(b""), f"{SHARD}: 0 records where"),
        (lambda d: shutil.copy(d / SHARD, d / "imagenet2012-x"), "does not belong here"),
        (edit_info, "where dataset_info.json says"),
        (lambda d: (d / "label.labels.txt").write_text("n00000000\n"), "label.labels.txt"),
        (lambda d: (d / "features.json").unlink(), "features.json: missing"),
    ],
)
def test_damage_is_named(
    dataset: Path,
    damage: Callable[[Path], object],
    said: str,
    checksums: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stay_in_this_process(monkeypatch)
    damage(dataset)
    if not checksums:
        (dataset / "SHA256SUMS").unlink()
    with pytest.raises(VerificationError, match=said):
        verify(dataset, workers=1).require_sound()


def edited(name: str, *path: str | int, value: object) -> Callable[[Path], object]:
    def edit(dataset: Path) -> None:
        plain = json.loads((dataset / name).read_text(encoding="utf-8"))
        place = plain
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        (dataset / name).write_text(json.dumps(plain), encoding="utf-8")

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        edited("dataset_info.json", "version", value="5.0.0"),
        edited("dataset_info.json", "fileFormat", value="riegeli"),
        edited("dataset_info.json", "name", value="imagenet"),
        edited("dataset_info.json", "splits", value=[]),
        edited("dataset_info.json", "splits", 0, "shardLengths", value=["-1"]),
        edited("dataset_info.json", "splits", 0, "numBytes", value="9" * 5000),
        edited("dataset_info.json", "splits", 0, "filepathTemplate", value="x"),
        edited("dataset_info.json", "splits", 0, "name", value="test"),
        edited("features.json", "featuresDict", "features", "label", value={}),
        edited("features.json", "featuresDict", "features", value={}),
        lambda d: (d / "dataset_info.json").write_text("[" * 100_000),
        lambda d: (d / "features.json").write_text("junk"),
    ],
)
def test_metadata_that_tfds_would_not_read_is_found_without_checksums(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    stay_in_this_process(monkeypatch)
    (dataset / "SHA256SUMS").unlink()
    verify(dataset, workers=1).require_sound()
    damage(dataset)
    with pytest.raises(VerificationError):
        verify(dataset, workers=1).require_sound()


def test_a_folder_in_the_place_of_a_file(dataset: Path) -> None:
    for name in ("SHA256SUMS", "features.json", "conversion_report.json", SHARD):
        data = (dataset / name).read_bytes()
        (dataset / name).unlink()
        (dataset / name).mkdir()
        with pytest.raises(VerificationError, match=name):
            verify(dataset, workers=1).require_sound()
        (dataset / name).rmdir()
        (dataset / name).write_bytes(data)


def test_every_flipped_bit_of_a_shard_is_found_at_its_record(published: Path) -> None:
    path = published / SHARD
    data = path.read_bytes()
    damaged = path.with_name("damaged")
    rng = random.Random(1)
    try:
        for place in [
            *range(64),
            *rng.sample(range(len(data)), 200),
            *range(len(data) - 64, len(data)),
        ]:
            flipped = bytearray(data)
            flipped[place] ^= 1 << rng.randrange(8)
            damaged.write_bytes(flipped)
            facts = read_shard(ReadTask(str(damaged), "train", None, decode=False))
            assert facts.problems, place
            assert "record" in facts.problems[0]
    finally:
        damaged.unlink()


def test_every_altered_byte_of_every_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay_in_this_process(monkeypatch)
    monkeypatch.setattr("converter.pool.shut_down", lambda: None)
    tiny = replace(TINY, images_per_class=1, validation=2, test=1, classes=1, width=8, height=8)
    make_archives(tmp_path / "tars", tiny)
    convert(tmp_path / "tars", tmp_path, workers=1, allow_incomplete=True)
    folder = tmp_path / "imagenet2012" / "5.1.0"
    verify(folder, workers=1).require_sound()
    rng = random.Random(2)
    files = sorted(folder.iterdir())
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        step = max(1, len(data) // (20 if WINDOWS else 900))  # of longer files every few bytes
        for place in range(0, len(data), step):
            altered = bytearray(data)
            altered[place] ^= 1 << rng.randrange(8)
            path.write_bytes(altered)
            with pytest.raises(VerificationError) as found:
                verify(folder, workers=1).require_sound()
            assert path.name in str(found.value) or path.name == "SHA256SUMS", (path.name, place)
        for shorter in (data[:-1], data + b"\0"):
            path.write_bytes(shorter)
            with pytest.raises(VerificationError):
                verify(folder, workers=1).require_sound()
        path.write_bytes(data)
    verify(folder, workers=1).require_sound()


def write_records(path: Path, *records: tuple[str, int, bytes]) -> ReadTask:
    with open(path, "wb") as file:
        for name, label, image in records:
            before, after = frame_image(name.encode(), label, image)
            file.write(before + image + after)
    return ReadTask(str(path), "validation", None, decode=True)


def test_wrong_labels_strange_names_doubles_and_bad_images_are_found(tmp_path: Path) -> None:
    first = "ILSVRC2012_val_00000001.JPEG"
    right = label_of_name("validation", first)
    assert right == 65
    task = write_records(
        tmp_path / "shard", (first, 64, b"junk"), (first, 65, b"junk"), ("cat.jpg", 1, b"junk")
    )
    facts = read_shard(task)
    assert any("label 64, should be 65" in problem for problem in facts.problems)
    assert any("record 1" in problem and "twice" in problem for problem in facts.problems)
    assert any("cat.jpg): not a name" in problem for problem in facts.problems)
    assert len(facts.corrupt) == 3
    assert label_of_name("validation", "ILSVRC2012_val_00050001.JPEG") is None
    assert label_of_name("train", "n01440764_10026.JPEG") == 0
    assert label_of_name("train", "n00000000_1.JPEG") is None
    assert label_of_name("test", "test/ILSVRC2012_test_00000001.JPEG") == -1


def test_images_left_out_as_corrupt_are_accounted_for(tmp_path: Path) -> None:
    make_archives(tmp_path / "tars", TINY)
    tar = tmp_path / "tars" / "ILSVRC2012_img_val.tar"
    data = tar.read_bytes()
    for number in (3, 7):
        header = data.index(b"ILSVRC2012_val_%08d" % number)
        data = data[: header + 512] + b"JUNK" * 20 + data[header + 592 :]
    tar.write_bytes(data)
    with pytest.raises(CorruptImagesError, match="ILSVRC2012_val_00000003"):
        convert(tmp_path / "tars", tmp_path, workers=1, allow_incomplete=True, shard_limits=LIMITS)
    report = convert(
        tmp_path / "tars",
        tmp_path,
        workers=1,
        allow_incomplete=True,
        shard_limits=LIMITS,
        on_corrupt="skip",
    )
    assert sorted(image.file_name for image in report.corrupt) == [
        "ILSVRC2012_val_00000003.JPEG",
        "ILSVRC2012_val_00000007.JPEG",
    ]
    verdict = verify(tmp_path, workers=1, decode=True)
    verdict.require_sound()
    assert verdict.splits["validation"].records == 10


def test_what_is_no_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"no imagenet2012 dataset in .*Give a data_dir"):
        verify(tmp_path)
    with pytest.raises(VerificationError, match="absent does not exist"):
        verify(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(VerificationError, match="file is a file"):
        verify(tmp_path / "file")


def test_unfinished_work_is_named(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay_in_this_process(monkeypatch)
    make_archives(tmp_path / "tars", TINY)
    tar = tmp_path / "tars" / "ILSVRC2012_img_val.tar"
    data = tar.read_bytes()
    at = data.index(b"ILSVRC2012_val_00000003") + 512
    tar.write_bytes(data[:at] + b"JUNK" * 20 + data[at + 80 :])
    out = tmp_path / "other"
    with pytest.raises(CorruptImagesError):
        convert(tmp_path / "tars", out, workers=1, allow_incomplete=True, shard_limits=LIMITS)
    (work,) = (out / "imagenet2012").glob("incomplete*")
    written = len(list((work / "dataset").iterdir()))
    said = (
        rf"dataset in .* yet: a conversion is unfinished in {re.escape(str(work))} "
        rf"\({written} shards are written"
    )
    for folder in (out, out / "imagenet2012", work, work / "dataset"):
        with pytest.raises(VerificationError, match=said):
            verify(folder)
    shutil.copytree(work, dataset.parent / work.name)
    text = str(verify(dataset, workers=1))
    assert "Beside it, a conversion is unfinished" in text
    assert "train: 10 of 1,281,167" in text
