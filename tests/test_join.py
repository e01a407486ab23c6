"""A later run adds a split to a published dataset, in one step."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from converter import convert, osal
from converter.demo import DemoSize, make_archives
from converter.errors import OutputError
from converter.plan import ShardLimits
from converter.published import read_info
from converter.verify import verify
from tests.test_parity import prepare_with_tfds
from tests.world import in_this_process

__all__ = ["in_this_process"]  # fixtures

SIZE = DemoSize(
    images_per_class=2, validation=20, test=6, classes=8, width=32, height=24, mean_bytes=1000
)
LIMITS = ShardLimits(min_bytes=3000, max_bytes=6000)


class Crash(BaseException):
    """The power is gone."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


def add(archives: Path, out: Path, *splits: str, restart: bool = False) -> None:
    convert(
        archives,
        out,
        workers=1,
        splits=splits or None,
        allow_incomplete=True,
        restart=restart,
        shard_limits=LIMITS,
    )


def files(out: Path) -> dict[str, bytes]:
    folder = out / "imagenet2012" / "5.1.0"
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name[:10] != "conversion"}


@pytest.fixture(scope="module")
def whole(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole")
    add(archives, out)
    return files(out)


def test_added_splits_give_what_one_run_gives(
    archives: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    add(archives, tmp_path, "test")
    add(archives, tmp_path, "train")
    with pytest.raises(OutputError, match="exists already"):
        add(archives, tmp_path, "train", "validation")
    add(archives, tmp_path)
    assert files(tmp_path) == whole
    assert [path.name for path in (tmp_path / "imagenet2012").iterdir()] == ["5.1.0"]
    verify(tmp_path, workers=1).require_sound()
    with pytest.raises(OutputError, match="exists already"):
        add(archives, tmp_path)
    path = tmp_path / "imagenet2012" / "5.1.0" / "conversion_report.json"
    report = json.loads(path.read_text(encoding="ascii"))
    assert list(report["splits"]) == ["validation"]
    assert list(report["joined_to"]["splits"]) == ["train"]
    assert list(report["joined_to"]["joined_to"]["splits"]) == ["test"]


@pytest.mark.parametrize("readable", [True, False])
def test_a_restart_never_deletes_a_split_that_it_does_not_make(
    archives: Path, tmp_path: Path, whole: dict[str, bytes], readable: bool
) -> None:
    add(archives, tmp_path)
    info = tmp_path / "imagenet2012" / "5.1.0" / "dataset_info.json"
    if not readable:
        info.write_bytes(b"{")
    before = files(tmp_path)
    with pytest.raises(OutputError, match=r"also holds train and test, which --restart would") as e:
        add(archives, tmp_path, "validation", restart=True)
    assert e.value.exit_code == 4
    assert "Give all the archives" in str(e.value)
    assert "remove the folder by hand" in str(e.value)
    assert files(tmp_path) == before
    assert [path.name for path in (tmp_path / "imagenet2012").iterdir()] == ["5.1.0"]
    add(archives, tmp_path, restart=True)
    assert files(tmp_path) == whole


def crashing(number: int, real: Callable[..., None]) -> Callable[..., None]:
    calls = 0

    def replace(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Crash
        real(source, target)

    return replace


def test_a_crash_at_any_rename_leaves_the_old_dataset_or_the_new_one(
    archives: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    real, number, crashed = osal.replace, 0, True
    while crashed:
        number += 1
        out = tmp_path / str(number)
        add(archives, out, "train", "test")
        final = out / "imagenet2012" / "5.1.0"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(osal, "replace", crashing(number, real))
            try:
                add(archives, out, "validation")
                crashed = False
            except Crash:
                pass
        for split in read_info(final).values():
            assert all((final / name).exists() for name in split.shard_names)
        with contextlib.suppress(OutputError):  # where only the clean-up was left, it exists
            add(archives, out, "validation")
        assert files(out) == whole, number
        assert [path.name for path in final.parent.iterdir()] == ["5.1.0"]
    assert number > 10


@pytest.mark.usefixtures("tf")
def test_a_split_joins_what_tfds_made(
    archives: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "ILSVRC2012_img_train.tar").symlink_to(archives / "ILSVRC2012_img_train.tar")
    (first / "ILSVRC2012_img_val.tar").symlink_to(archives / "ILSVRC2012_img_val.tar")
    final = prepare_with_tfds(first, tmp_path, LIMITS)
    verify(tmp_path, workers=1).require_sound()
    add(archives, tmp_path)
    verdict = verify(tmp_path, workers=1)
    verdict.require_sound()
    assert verdict.checksums
    assert (final / "dataset_info.json").read_bytes() == whole["dataset_info.json"]


def test_damage_never_becomes_what_is_right(archives: Path, tmp_path: Path) -> None:
    add(archives, tmp_path, "train")
    final = tmp_path / "imagenet2012" / "5.1.0"
    (final / "SHA256SUMS").unlink()
    shard = next(final.glob("*train*00001-of*"))
    data = shard.read_bytes()
    shard.write_bytes(data[:-30])
    with pytest.raises(OutputError, match=rf"{shard.name}: record .*ends inside"):
        add(archives, tmp_path, "validation")
    shard.unlink()
    with pytest.raises(OutputError, match="lacks 1 of its"):
        add(archives, tmp_path, "validation")
    shard.write_bytes(data)
    add(archives, tmp_path, "validation")
    verdict = verify(tmp_path, workers=1)
    verdict.require_sound()
    assert verdict.checksums


def test_metadata_in_another_spelling_is_replaced(
    archives: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    add(archives, tmp_path, "train", "test")
    final = tmp_path / "imagenet2012" / "5.1.0"
    features = final / "features.json"
    (final / "SHA256SUMS").unlink()
    features.write_text(json.dumps(json.loads(features.read_text(encoding="utf-8"))), "utf-8")
    add(archives, tmp_path, "validation")
    verify(tmp_path, workers=1).require_sound()
    assert files(tmp_path) == whole


def test_a_dataset_behind_a_link_is_left_alone(
    archives: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    add(archives, tmp_path, "test")
    final, elsewhere = tmp_path / "imagenet2012" / "5.1.0", tmp_path / "elsewhere"
    final.rename(elsewhere)
    final.symlink_to(elsewhere)
    before = sorted(path.name for path in elsewhere.iterdir())
    convert(archives, tmp_path, workers=1, restart=True, allow_incomplete=True, shard_limits=LIMITS)
    assert files(tmp_path) == whole
    assert sorted(path.name for path in elsewhere.iterdir()) == before
    assert [path.name for path in final.parent.iterdir()] == ["5.1.0"]
    assert not final.is_symlink()
