"""Locks, clocks, space and sources that are not as a run left them."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from converter import convert, pool, publish
from converter.demo import DemoSize, make_archives
from converter.errors import (
    Interrupted,
    NoSpaceError,
    ResumeError,
    SourceChangedError,
    SourceError,
)
from converter.imagenet import CMYK_IMAGES
from converter.plan import ShardLimits
from converter.progress import PlainProgress
from converter.report import Report, versions
from converter.workspace import Workspace
from tests.system import WINDOWS, not_on_windows
from tests.tarmaker import nested
from tests.world import in_this_process, stay_in_this_process

__all__ = ["in_this_process"]  # fixtures

SIZE = DemoSize(
    images_per_class=2, validation=12, test=4, classes=6, width=16, height=16, mean_bytes=700
)
LIMITS = ShardLimits(min_bytes=2000, max_bytes=4000)


class Stopped(BaseException):
    """The run ends here."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


def run(archives: Path, out: Path, **options: Any) -> Report:
    settings = {"workers": 1, "allow_incomplete": True, "shard_limits": LIMITS, **options}
    return convert(archives, out, **settings)


def sums(out: Path) -> str:
    return (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_text(encoding="ascii")


@pytest.fixture(scope="module")
def undisturbed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        stay_in_this_process(patch)
        run(archives, out)
    return sums(out)


def stop_after(shards: int, then: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets something happen when so many shards are written."""

    def run(function: Callable[[Any], Any], tasks: Any, workers: int) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if function.__name__ == "write_shard" and number == shards:
                then()
            yield function(task)

    monkeypatch.setattr(pool, "run", run)


def stop() -> None:
    raise Stopped


@pytest.fixture
def halfway(archives: Path, tmp_path: Path) -> Path:
    """An output of a run that ended without a word after four shards."""
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(4, stop, patch)
        with pytest.raises(Stopped):
            run(archives, out)
    return out


def a_dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


HOLDERS = ["dead", "reused", "another host", "junk", "unreadable"]


@pytest.mark.parametrize("holder", HOLDERS[:-1] if WINDOWS else HOLDERS)
def test_a_lock_that_nobody_holds_is_taken_over(
    archives: Path, halfway: Path, undisturbed: str, holder: str
) -> None:
    lock = halfway / "imagenet2012" / ".imagenet-convert_5.1.0.lock"
    lock.touch()
    host = "elsewhere" if holder == "another host" else socket.gethostname()
    pid = a_dead_process() if holder == "dead" else os.getpid()
    note = json.dumps({"pid": pid, "host": host, "since": "2012-09-30T00:00:00Z"})
    path = lock.with_name(lock.name + ".json")
    path.write_bytes(b"\xff{" if holder == "junk" else note.encode())
    if holder == "unreadable":
        path.chmod(0)
    assert run(archives, halfway).reused_images > 0
    assert sums(halfway) == undisturbed
    assert [entry.name for entry in lock.parent.iterdir()] == ["5.1.0"]


def test_the_clock_does_not_matter(
    archives: Path, halfway: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    year = 365 * 86400
    real, jumps = time.time, iter(range(1, 10**6))
    monkeypatch.setattr(time, "time", lambda: real() + year * (-1) ** next(jumps))
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((1970, 1, 1, 0, 0, 0, 3, 1, 0)))
    report = run(archives, halfway)
    assert sums(halfway) == undisturbed
    assert 0 < report.seconds < 100
    assert report.reused_images > 0


def test_only_what_is_still_to_be_written_needs_space(
    archives: Path, halfway: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sum(
        (halfway.parent / "x" / "imagenet2012" / "5.1.0" / name).stat().st_size
        for name in _convert_elsewhere(archives, halfway.parent / "x")
    )
    done = sum(path.stat().st_size for path in Workspace(halfway, "5.1.0").dataset.iterdir())
    assert 0 < done < whole
    margin = publish.METADATA_BYTES
    usage = shutil.disk_usage(halfway)
    free = whole - done + margin - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=free))
    with pytest.raises(NoSpaceError, match=f"{free + 1:,} bytes are needed and {free:,} are free"):
        run(archives, halfway)
    free += 1
    assert run(archives, halfway).reused_images > 0
    assert sums(halfway) == undisturbed


def _convert_elsewhere(archives: Path, out: Path) -> list[str]:
    run(archives, out)
    return [line.split()[1] for line in sums(out).splitlines() if "tfrecord" in line]


@pytest.mark.parametrize("package", ["imagenet-convert", "tensorflow-datasets"])
def test_another_version_is_named(
    archives: Path, halfway: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    now = {**versions(), package: "99.0"}
    monkeypatch.setattr("converter.preparing.versions", lambda: now)
    with pytest.raises(ResumeError, match=r"another version .*99\.0.* --restart"):
        run(archives, halfway)


@not_on_windows("the command is PowerShell's")
def test_another_source_is_named_and_a_copy_can_be_made_the_same(
    archives: Path, halfway: Path, undisturbed: str, tmp_path: Path
) -> None:
    source = tmp_path / "the copies"
    shutil.copytree(archives, source, copy_function=shutil.copy)
    val = source / "ILSVRC2012_img_val.tar"
    for name in os.listdir(archives):
        if name != val.name:
            shutil.copystat(archives / name, source / name)
    os.utime(val, ns=(5, 1_000_000_000_123_456_789))
    with pytest.raises(ResumeError) as error:
        run(source, halfway)
    said = str(error.value)
    assert "ILSVRC2012_img_val.tar: modified 2001-09-09 01:46:40.123456 UTC, was 20" in said
    assert "img_train" not in said
    assert "[" not in said
    (command,) = re.findall("touch .*", said)
    subprocess.run(shlex.split(command), check=True)
    assert val.stat().st_mtime_ns == (archives / val.name).stat().st_mtime_ns
    assert run(source, halfway).reused_images > 0
    assert sums(halfway) == undisturbed


def test_other_archives_and_other_splits_are_named(
    archives: Path, halfway: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ResumeError, match=r"another choice of splits \(train, validation, test; now"
    ):
        run(archives, halfway, splits="train")
    source = tmp_path / "other"
    shutil.copytree(archives, source)
    _grow(source / "ILSVRC2012_img_val.tar")
    (source / "ILSVRC2012_img_test.tar").rename(source / "test.tar")
    with pytest.raises(ResumeError) as error:
        run(source, halfway)
    said = str(error.value)
    size = (archives / "ILSVRC2012_img_val.tar").stat().st_size
    assert f"ILSVRC2012_img_val.tar: {size + 512:,} bytes, was {size:,}" in said
    assert "test.tar: was not among the archives" in said
    assert "ILSVRC2012_img_test.tar: is not among the archives any more" in said
    assert "start anew with --restart" in said


def foreseen(archives: Path, out: Path, **options: Any) -> str:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    report = run(archives, out, dry_run=True, **options)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert report.outlook[-1] == "Nothing was written (--dry-run)."
    return str(report)


def test_a_dry_run_foresees_what_becomes_of_unfinished_work(
    archives: Path, halfway: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "A run would continue: 4 of 10 shards are kept" in foreseen(archives, halfway)
    assert "discard the unfinished work" in foreseen(archives, halfway, restart=True)
    other = foreseen(archives, halfway, splits="train")
    assert re.search(r"A run would be refused: .* another choice of splits", other)
    usage = shutil.disk_usage(halfway)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    needed = re.search(r"([\d,]+) bytes are needed and 1,000 are free", foreseen(archives, halfway))
    assert needed
    with pytest.raises(NoSpaceError, match=f"{needed[1]} bytes are needed and 1,000 are free"):
        run(archives, halfway)


def test_a_dry_run_foresees_what_becomes_of_a_dataset(archives: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "Space: " in foreseen(archives, out)
    assert not out.exists()
    run(archives, out, splits="validation")
    joins = foreseen(archives, out)
    assert "A run would join train and test to the dataset, which holds validation" in joins
    assert "without an archive" not in joins
    assert "A run would be refused: " in foreseen(archives, out, splits="validation")
    assert "A run would replace the dataset" in foreseen(archives, out, restart=True)
    lost = foreseen(archives, out, restart=True, splits="train")
    assert re.search("A run would be refused: .* also holds validation, which --restart", lost)
    with Workspace(out, "5.1.0").locked():
        report = run(archives, out, dry_run=True)
    assert f"Another run works on this output now: process {os.getpid()}" in str(report)


def test_a_dry_run_says_about_where_sizes_are_not_known_yet(tmp_path: Path) -> None:
    name = sorted(CMYK_IMAGES)[0]
    tars = tmp_path / "tars"
    tars.mkdir()
    train = nested({name.split("_")[0]: [(name, b"x" * 100)]})
    (tars / "ILSVRC2012_img_train.tar").write_bytes(train)
    said = foreseen(tars, tmp_path / "out", splits="train")
    assert re.search(r"1 shard, about \d+ bytes", said)
    assert re.search(r"Space: about [\d,]+ bytes are needed", said)


def test_folder_fsync_where_there_is_none(
    archives: Path, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    run(archives, tmp_path)
    assert sums(tmp_path) == undisturbed


SHAPES = ["symlinked", "relative", "with spaces", "long", "newline"]


@pytest.mark.parametrize("shape", SHAPES[:2] if WINDOWS else SHAPES)
def test_odd_paths(
    archives: Path, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    monkeypatch.chdir(tmp_path)
    place = {
        "symlinked": tmp_path / "link",
        "relative": Path("real") / ".." / "out",
        "with spaces": tmp_path / " two  words " / "'$HOME'",
        "long": tmp_path.joinpath(*["a" * 200] * 12),
        "newline": tmp_path / "one\ntwo\u3042\udcff",
    }[shape]
    if shape == "symlinked":
        place.symlink_to(real)
    source = place / "source"
    shutil.copytree(archives, source)
    run(source, place)
    assert sums(place) == undisturbed


def _grow(tar: Path) -> None:
    with open(tar, "ab") as file:
        file.write(bytes(512))


def _cut(tar: Path) -> None:
    os.truncate(tar, 2048)


def _rewrite(tar: Path) -> None:
    os.utime(tar, ns=(1, 1))


def _replace(tar: Path) -> None:
    tar.rename(tar.with_suffix(".old"))
    tar.write_bytes(bytes(10240))


@pytest.mark.parametrize("change", [_grow, _cut, _rewrite, _replace])
def test_a_source_that_changes_while_it_is_read(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(archives, source)
    tar = source / "ILSVRC2012_img_train.tar"
    stop_after(2, lambda: change(tar), monkeypatch)
    with pytest.raises(SourceChangedError, match=r"img_train.tar changed while it was converted"):
        run(source, out)
    assert not (out / "imagenet2012" / "5.1.0").exists()
    stay_in_this_process(monkeypatch)
    with pytest.raises((ResumeError, SourceError), match=r"another source|img_train.tar"):
        run(source, out)


def test_a_resumed_run_says_what_is_kept(
    archives: Path, halfway: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(archives, halfway, progress=PlainProgress())
    said = capsys.readouterr().err
    assert "Check: 4 of 4 shards" in said
    assert "Continuing: 4 of 10 shards are kept" in said


def halt() -> None:
    raise Interrupted("stopped in order")


@pytest.fixture
def stopped(archives: Path, tmp_path: Path) -> Path:
    """An output of a run that ended in order after four shards."""
    out = tmp_path / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(4, halt, patch)
        with pytest.raises(Interrupted, match="4 of 10 shards are done"):
            run(archives, out)
    return out


def alter(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)


def test_a_shard_that_was_altered_after_an_orderly_stop_is_written_anew(
    archives: Path, stopped: Path, undisturbed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = sorted(Workspace(stopped, "5.1.0").dataset.iterdir())[0]
    alter(shard)
    run(archives, stopped, progress=PlainProgress())
    said = capsys.readouterr().err
    assert f"{shard.name} is not as it was written" in said
    assert "Check: 1 of 1 shards" in said
    assert "Continuing: 3 of 10 shards are kept" in said
    assert sums(stopped) == undisturbed


def test_a_damaged_shard_is_not_forgotten_by_another_orderly_stop(
    archives: Path, halfway: Path, undisturbed: str
) -> None:
    space = Workspace(halfway, "5.1.0")
    shard = sorted(space.dataset.iterdir())[0]
    times = shard.stat()
    alter(shard)
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.MonkeyPatch.context() as patch:
        stop_after(0, halt, patch)
        with pytest.raises(Interrupted, match="3 of 10 shards are done"):
            run(archives, halfway)
    run(archives, halfway)
    assert sums(halfway) == undisturbed


def test_no_file_entries_left(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    image, disk = tmp_path / "image", tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    disk.mkdir()
    make = ["mkfs.ext4", "-q", "-N", "64", str(image)]
    mount = ["mount", "-o", "loop", str(image), str(disk)]
    for command in (make, mount):
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"there is no {command[0]}")
        if done.returncode:
            pytest.skip("mounting an image of a disk needs root and loop devices")
    try:
        fillers = []
        for number in range(100):  # leave room for the folders and some shards
            fillers.append(disk / f"filler{number}")
            try:
                fillers[-1].touch()
            except OSError:
                break
        for filler in fillers[:9]:
            filler.unlink()
        with pytest.raises(NoSpaceError, match=r"no file entries \(inodes\) are left"):
            run(archives, disk)
        for filler in fillers[9:-1]:
            filler.unlink()
        run(archives, disk)
        assert sums(disk) == undisturbed
    finally:
        subprocess.run(["umount", str(disk)], check=True)
