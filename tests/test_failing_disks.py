"""A source or a disk that fails in the middle: a clear error, and the next run goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from converter.demo import make_archives
from converter.errors import OutputError, SourceReadError
from converter.workspace import Workspace
from tests.disturbed import DRIVER, SIZE, assert_goes_on, run, start, sums, wait_for_shards
from tests.system import not_on_windows


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("pread64", "EIO", 3),
        ("write", "ENOSPC", 4),
        ("fsync", "EIO", 4),
        ("fsync", "ENOSPC", 4),
        ("rename", "EACCES", 4),
        ("write", "EINTR", 0),
    ],
)
def test_a_system_call_that_fails_in_a_worker(
    archives: Path, tmp_path: Path, undisturbed: str, call: str, error: str, code: int
) -> None:
    if not shutil.which("strace"):
        pytest.skip("there is no strace")
    times = "3+" if code else "3+2"
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(archives), "-e",
              f"inject={call}:error={error}:when={times}"]  # fmt: skip
    paths = [str(archives / name) for name in os.listdir(archives)]
    work = Workspace(tmp_path, "5.1.0").dataset
    paths += [str(work / f"{name}.tmp") for name in shard_names(undisturbed)]
    for path in paths:
        inject[5:5] = ["-P", path]
    process = subprocess.Popen(
        [*inject, sys.executable, "-c", DRIVER, str(archives), str(tmp_path), "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, said = process.communicate(timeout=200)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert_goes_on(archives, tmp_path, undisturbed)


def shard_names(sums: str) -> list[str]:
    return [line.split()[1] for line in sums.splitlines() if "tfrecord" in line]


@not_on_windows("an open file cannot be removed")
def test_a_source_that_vanishes(archives: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    process = start(source, tmp_path)
    wait_for_shards(tmp_path, 4)
    (source / "ILSVRC2012_img_train.tar").unlink()
    (source / "ILSVRC2012_img_val.tar").unlink()
    (source / "ILSVRC2012_img_test.tar").unlink()
    _, said = process.communicate(timeout=60)
    assert process.returncode == SourceReadError.exit_code
    assert "was indexed and is now gone" in said


@not_on_windows("there is no limit on the size of a file")
def test_no_file_larger_than_the_limit(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    fault = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    process = start(archives, tmp_path, fault)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "the file size limit is exceeded" in said
    assert_goes_on(archives, tmp_path, undisturbed)


@not_on_windows("a test cannot mount a small disk")
def test_a_full_disk(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        fault = "import shutil; u = shutil.disk_usage('/'); shutil.disk_usage = lambda _: u"
        process = start(archives, disk, fault)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 4, said
        assert f"no space on {disk}" in said
        grow = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(grow, check=True)
        assert_goes_on(archives, disk, undisturbed)
        report = json.loads(
            (disk / "imagenet2012/5.1.0/conversion_report.json").read_text(encoding="ascii")
        )
        assert "no space" in report["runs"][0].get("how", "no space")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@not_on_windows("a test cannot mount a read-only disk")
def test_a_read_only_output(archives: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(OutputError, match="is mounted read-only"):
            run(archives, disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
