"""Record for record what the real TFDS builder makes of the same archives."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from converter import convert
from converter.demo import DemoSize, make_archives
from converter.imagenet import CMYK_IMAGES, PNG_IMAGES
from converter.plan import ShardLimits
from converter.records import parse_example, read_payloads

tfds = pytest.importorskip("tensorflow_datasets")
shard_utils = pytest.importorskip("tensorflow_datasets.core.utils.shard_utils")

pytestmark = pytest.mark.usefixtures("tf")

METADATA = ("dataset_info.json", "features.json", "label.labels.txt")
OWN = {"SHA256SUMS", "conversion_report.json"}
SIZE = DemoSize(images_per_class=2, validation=60, test=20, width=48, height=32, mean_bytes=1500)
LIMITS = ShardLimits(min_bytes=20_000, max_bytes=40_000)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE, workers=2)
    return folder


def prepare_with_tfds(archives: Path, out: Path, limits: ShardLimits) -> Path:
    """Runs the real builder; it takes the limits from its class, whatever it is configured with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_utils.ShardConfig, "min_shard_size", limits.min_bytes)
        patch.setattr(shard_utils.ShardConfig, "max_shard_size", limits.max_bytes)
        builder = tfds.builder("imagenet2012", data_dir=out)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(manual_dir=archives)
        )
    return out / "imagenet2012" / "5.1.0"


def examples_of(tf: Any, path: Path) -> list[Any]:
    return [
        tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))
    ]


def assert_equal_datasets(tf: Any, ours: Path, theirs: Path) -> None:
    names = sorted(path.name for path in theirs.iterdir())
    assert sorted(path.name for path in ours.iterdir()) == sorted({*names, *OWN})
    for name in METADATA:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    for name in names:
        if "tfrecord" in name:
            assert examples_of(tf, ours / name) == examples_of(tf, theirs / name), name


def test_many_shards_of_all_splits(tf: Any, archives: Path, tmp_path: Path) -> None:
    theirs = prepare_with_tfds(archives, tmp_path / "theirs", LIMITS)
    report = convert(
        archives, tmp_path / "ours", workers=2, allow_incomplete=True, shard_limits=LIMITS
    )
    ours = Path(report.dataset_dir)
    assert {name: split.shards for name, split in report.splits.items()} == {
        "train": 128,
        "validation": 4,
        "test": 1,
    }
    assert_equal_datasets(tf, ours, theirs)

    names = {}
    for path in ours.glob("*-train.*"):
        with open(path, "rb") as file:
            for payload in read_payloads(file):
                record = parse_example(payload)
                names[record.file_name.decode()] = record.image
    odd = names.keys() & (CMYK_IMAGES | PNG_IMAGES)
    assert odd == CMYK_IMAGES | PNG_IMAGES
    for name in odd:
        assert tf.image.decode_jpeg(names[name]).shape[2] == 3

    for split in ("train[:10%]", "validation[50:60]", "test"):
        for ours_one, theirs_one in zip(
            tfds.load("imagenet2012", split=split, data_dir=tmp_path / "ours").as_numpy_iterator(),
            tfds.load(
                "imagenet2012", split=split, data_dir=tmp_path / "theirs"
            ).as_numpy_iterator(),
            strict=True,
        ):
            assert ours_one["file_name"] == theirs_one["file_name"]
            assert ours_one["label"] == theirs_one["label"]
            assert (ours_one["image"] == theirs_one["image"]).all()
            assert split != "test" or ours_one["label"] == -1


def test_the_command_under_the_limits_of_tfds(tf: Any, archives: Path, tmp_path: Path) -> None:
    theirs = prepare_with_tfds(archives, tmp_path / "theirs", ShardLimits())
    command = [sys.executable, "-m", "converter", "--source", str(archives)]
    options = ["--out", str(tmp_path / "ours"), "--workers", "2", "--allow-incomplete"]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=200)
    assert_equal_datasets(tf, tmp_path / "ours" / "imagenet2012" / "5.1.0", theirs)


def test_the_folder_in_the_test_archive_of_2019_is_no_part_of_the_name(
    archives: Path, tmp_path: Path
) -> None:
    source = tmp_path / "ILSVRC2012_img_test_v10102019.tar"
    with (
        tarfile.open(archives / "ILSVRC2012_img_test.tar") as flat,
        tarfile.open(source, "w") as prefixed,
    ):
        for member in flat:
            data = flat.extractfile(member)
            assert data is not None
            member.name = "test/" + member.name
            prefixed.addfile(member, io.BytesIO(data.read()))
    sums = []
    for number, given in enumerate((source, archives / "ILSVRC2012_img_test.tar")):
        out = tmp_path / str(number)
        report = convert(given, out, workers=1, splits=["test"], allow_incomplete=True)
        sums.append(Path(report.dataset_dir, "SHA256SUMS").read_text(encoding="ascii"))
    assert sums[0] == sums[1]


def test_nothing_needs_a_network(archives: Path, tmp_path: Path) -> None:
    alone = ["unshare", "-n"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a test have a network namespace of its own")
    code = (
        "import sys, tensorflow_datasets as tfds; from converter import convert; "
        "convert(sys.argv[1], sys.argv[2], workers=1, splits=['validation'], "
        "allow_incomplete=True);"
        "print(len(list(tfds.load('imagenet2012', split='validation', data_dir=sys.argv[2]))))"
    )
    result = subprocess.run(
        [*alone, sys.executable, "-c", code, archives, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.stdout.split()[-1] == "60"
