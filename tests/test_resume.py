"""What a stopped conversion left is kept, checked, or done again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converter.demo import DemoSize, make_archives
from converter.errors import CorruptImagesError, ResumeError
from converter.journal import read_line, written_line
from converter.plan import ShardLimits
from converter.workspace import Workspace
from tests.disturbed import SIZE, run, start, sums

STOP_AT = """
import signal
from converter.journal import Journal
real = Journal.add
def add(journal, kind, value):
    real(journal, kind, value)
    if kind == "shard" and len(journal.shards) == 6:
        signal.raise_signal(signal.SIGTERM)
Journal.add = add
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


@pytest.fixture(scope="module")
def undisturbed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("undisturbed")
    run(archives, out)
    return sums(out)


@pytest.fixture(scope="module")
def stopped(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output whose conversion was stopped by SIGTERM when some shards were written."""
    out = tmp_path_factory.mktemp("stopped")
    process = start(archives, out, STOP_AT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "Run the same command again to continue" in said
    return out


@pytest.fixture
def interrupted(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_finished_shards_are_kept(archives: Path, interrupted: Path, undisturbed: str) -> None:
    report = run(archives, interrupted, workers=1)
    assert report.reused_images > 0
    assert report.images + report.reused_images == sum(s.images for s in report.splits.values())
    assert [entry["how"] for entry in report.runs] == ["interrupted", "published"]
    assert sums(interrupted) == undisturbed


def test_torn_lines_and_damaged_shards_are_done_again(
    archives: Path, interrupted: Path, undisturbed: str
) -> None:
    space = Workspace(interrupted, "5.1.0")
    shard = sorted(space.dataset.iterdir())[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    (space.dataset / "stray").write_bytes(b"x")
    with open(space.work / "journal.jsonl", "ab") as file:
        file.write(b'junk\n{"shard": {"name": "imagenet2012-tr')
    run(archives, interrupted, verify_resume=True)
    assert sums(interrupted) == undisturbed


def rewrite_journal(
    out: Path, change: Callable[[dict[str, Any]], dict[str, Any]], resealed: bool = True
) -> None:
    path = Workspace(out, "5.1.0").work / "journal.jsonl"
    lines = []
    for line in path.read_bytes().splitlines():
        entry = read_line(line)
        assert entry is not None
        if "shard" in entry:
            entry = {"shard": change(entry["shard"])}
        crc = written_line(entry)[:8] if resealed else line[:8]
        lines.append(crc + written_line(entry)[8:] + b"\n")
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("change", "resealed"),
    [
        ({"sha256": "0" * 64}, False),
        ({"num_bytes": 1}, False),
        ({"records": "many"}, False),
        ({"unknown field of a later version": 1}, True),
    ],
)
def test_an_altered_journal_is_not_believed(
    archives: Path, interrupted: Path, undisturbed: str, change: dict[str, Any], resealed: bool
) -> None:
    rewrite_journal(interrupted, lambda shard: shard | change, resealed)
    assert run(archives, interrupted).reused_images == 0
    assert sums(interrupted) == undisturbed


def test_a_stricter_validation_checks_what_was_not_checked(
    archives: Path, interrupted: Path
) -> None:
    rewrite_journal(interrupted, lambda shard: shard | {"validate": "off"})
    assert run(archives, interrupted).reused_images == 0


def test_another_source_or_version_is_named(
    archives: Path, interrupted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    make_archives(other, DemoSize(**{**SIZE.__dict__, "seed": 1}))
    with pytest.raises(ResumeError, match=r"(?s)another source:.*--restart"):
        run(other, interrupted)
    with pytest.raises(ResumeError, match="another shard limits"):
        run(archives, interrupted, shard_limits=ShardLimits(5000, 9000))
    report = run(other, interrupted, restart=True)
    assert report.reused_images == 0


def test_corrupt_images_cost_only_their_shards(archives: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    tar = source / "ILSVRC2012_img_val.tar"
    data = tar.read_bytes()
    at = data.index(b"ILSVRC2012_val_00000005") + 512
    tar.write_bytes(data[:at] + b"JUNK" * 20 + data[at + 80 :])
    with pytest.raises(CorruptImagesError, match="ILSVRC2012_val_00000005"):
        run(source, tmp_path)
    report = run(source, tmp_path, on_corrupt="skip")
    assert [image.file_name for image in report.corrupt] == ["ILSVRC2012_val_00000005.JPEG"]
    assert 0 < report.images < 20
    assert report.reused_images > 80
