"""The power may fail at any operation: what is published is whole, and work done so far counts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from converter import convert
from converter.demo import DemoSize, make_archives
from converter.errors import OutputError
from converter.journal import read_line
from converter.plan import ShardLimits
from converter.published import read_info
from converter.report import Report
from converter.verify import verify
from tests.powerloss import Disk, PowerLoss
from tests.system import not_on_windows
from tests.world import stay_in_this_process

SIZE = DemoSize(
    images_per_class=2, validation=8, test=4, classes=5, width=16, height=16, mean_bytes=700
)
LIMITS = ShardLimits(min_bytes=2000, max_bytes=4000)
DATASET = Path("imagenet2012") / "5.1.0"

pytestmark = not_on_windows("no folder can be opened and made durable")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stay_in_this_process(monkeypatch)
    monkeypatch.setattr("converter.conversion.publish.dataset_version", lambda: "5.1.0")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


def run(archives: Path, out: Path, *splits: str) -> Report:
    return convert(
        archives, out, workers=1, splits=splits or None, allow_incomplete=True, shard_limits=LIMITS
    )


def bytes_of(out: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (out / DATASET).iterdir()
        if path.name != "conversion_report.json"
    }


def journaled_shards(out: Path, disk: Disk) -> int:
    """Counts the shards whose line in the journal was fsynced before the failure."""
    lines = [line for path in out.rglob("journal.jsonl") for line in path.read_bytes().splitlines()]
    if disk.operations[-1].endswith("journal.jsonl"):
        del lines[-1]
    return sum("shard" in (read_line(line) or {}) for line in lines)


def operations(prepare: Callable[[Path], None], act: Callable[[Path], object], at: Path) -> int:
    prepare(at)
    with Disk(at) as disk:
        act(at)
    disk.restart(at.with_name("after"), entries_written_back=False)
    shutil.rmtree(at)
    return len(disk.operations)


@pytest.mark.parametrize("entries_written_back", [False, True])
def test_a_conversion(archives: Path, tmp_path: Path, entries_written_back: bool) -> None:
    whole = tmp_path / "whole"
    run(archives, whole)
    wanted = bytes_of(whole)
    out = tmp_path / "out"
    count = operations(Path.mkdir, lambda place: run(archives, place), out)
    assert bytes_of(tmp_path / "after") == wanted  # exit 0 means that all of it is on the disk
    assert count > 40
    for number in range(1, count + 1):
        out.mkdir()
        with Disk(out, number) as disk, pytest.raises(PowerLoss):
            run(archives, out)
        back = tmp_path / "back"
        disk.restart(back, entries_written_back)
        if (back / DATASET).exists():
            assert bytes_of(back) == wanted, disk.operations[-1]
            with pytest.raises(OutputError, match="exists already"):
                run(archives, back)
        else:
            done = journaled_shards(out, disk)
            report = run(archives, back)
            assert bytes_of(back) == wanted, disk.operations[-1]
            assert sum("reused_shards" in entry for entry in report.runs) >= 1
            assert report.runs[-1]["reused_shards"] >= done, disk.operations[-1]
        assert [path.name for path in (back / "imagenet2012").iterdir()] == ["5.1.0"]
        shutil.rmtree(out)
        shutil.rmtree(back)


@pytest.mark.parametrize("entries_written_back", [False, True])
def test_adding_a_split(archives: Path, tmp_path: Path, entries_written_back: bool) -> None:
    whole, old = tmp_path / "whole", tmp_path / "old"
    run(archives, whole)
    wanted = bytes_of(whole)
    run(archives, old, "train", "test")

    def prepare(place: Path) -> None:
        shutil.copytree(old, place)

    out = tmp_path / "out"
    count = operations(prepare, lambda place: run(archives, place, "validation"), out)
    assert bytes_of(tmp_path / "after") == wanted
    for number in range(1, count + 1):
        prepare(out)
        with Disk(out, number) as disk, pytest.raises(PowerLoss):
            run(archives, out, "validation")
        back = tmp_path / "back"
        disk.restart(back, entries_written_back)
        splits = read_info(back / DATASET)
        assert set(splits) in ({"train", "test"}, {"train", "validation", "test"})
        for split in splits.values():
            for name in split.shard_names:
                assert (back / DATASET / name).read_bytes() == wanted[name], disk.operations[-1]
        with contextlib.suppress(OutputError):  # where only the clean-up was left, it exists
            run(archives, back, "validation")
        assert bytes_of(back) == wanted, disk.operations[-1]
        verify(back, workers=1).require_sound()
        shutil.rmtree(out)
        shutil.rmtree(back)


@pytest.mark.parametrize("entries_written_back", [False, True])
def test_replacing_a_dataset(archives: Path, tmp_path: Path, entries_written_back: bool) -> None:
    whole, old = tmp_path / "whole", tmp_path / "old"
    run(archives, whole)
    run(archives, old, "test")
    wanted, before = bytes_of(whole), bytes_of(old)

    def prepare(place: Path) -> None:
        shutil.copytree(old, place)

    def restart(place: Path) -> None:
        convert(archives, place, workers=1, restart=True, allow_incomplete=True,
                shard_limits=LIMITS)  # fmt: skip

    out = tmp_path / "out"
    count = operations(prepare, restart, out)
    assert bytes_of(tmp_path / "after") == wanted
    for number in range(count - 12, count + 1):
        prepare(out)
        with Disk(out, number) as disk, pytest.raises(PowerLoss):
            restart(out)
        back = tmp_path / "back"
        disk.restart(back, entries_written_back)
        if (back / DATASET).exists():
            assert bytes_of(back) in (before, wanted), disk.operations[-1]
        restart(back)
        assert bytes_of(back) == wanted, disk.operations[-1]
        assert [path.name for path in (back / "imagenet2012").iterdir()] == ["5.1.0"]
        shutil.rmtree(out)
        shutil.rmtree(back)
