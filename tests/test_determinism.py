"""The same bytes from any number of workers, run, machine and setting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from converter import convert, pool
from converter.demo import DemoSize, make_archives
from converter.plan import ShardLimits
from converter.shards import ShardTask, write_shard
from converter.workspace import Workspace
from tests.world import stay_in_this_process

SIZE = DemoSize(
    images_per_class=3, validation=30, test=10, classes=20, width=32, height=24, mean_bytes=1000
)
LIMITS = ShardLimits(min_bytes=4000, max_bytes=8000)
CODE = (
    "import os, sys; from converter import convert; from converter.plan import ShardLimits; "
    "os.umask(0o077); convert(sys.argv[1], sys.argv[2], workers=2, allow_incomplete=True, "
    "shard_limits=ShardLimits(4000, 8000))"
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


def sums(out: Path) -> str:
    return (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_text(encoding="ascii")


def test_any_number_of_workers_and_any_setting(archives: Path, tmp_path: Path) -> None:
    for workers in (1, 2, 5):
        out = tmp_path / str(workers)
        report = convert(archives, out, workers=workers, allow_incomplete=True, shard_limits=LIMITS)
        assert report.splits["train"].shards > 4
        assert sums(out) == sums(tmp_path / "1")
        assert [path.name for path in (out / "imagenet2012").iterdir()] == ["5.1.0"]
    odd = tmp_path / "an odd \u30d5\u30a9\u30eb\u30c0"
    setting = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run(
        [sys.executable, "-c", CODE, archives, odd],
        check=True,
        capture_output=True,
        env={**os.environ, **setting},
        cwd=tmp_path,
        timeout=120,
    )
    assert sums(odd) == sums(tmp_path / "1")
    names = [line.split()[1] for line in sums(odd).splitlines()]
    kept = {path.name for path in (odd / "imagenet2012" / "5.1.0").iterdir()}
    assert kept == {*names, "SHA256SUMS", "conversion_report.json"}
    if shutil.which("sha256sum"):
        checked = subprocess.run(
            ["sha256sum", "-c", "--strict", "SHA256SUMS"],
            cwd=odd / "imagenet2012" / "5.1.0",
            capture_output=True,
            text=True,
            check=True,
        )
        assert checked.stdout.count(": OK") == len(names)


def modules_after(task: ShardTask) -> list[str]:
    write_shard(task)
    return sorted(sys.modules)


def test_workers_import_no_tensorflow(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[ShardTask] = []

    def stop(task: ShardTask) -> None:
        tasks.append(task)
        raise ZeroDivisionError

    stay_in_this_process(monkeypatch)
    monkeypatch.setattr("converter.work.write_shard", stop)
    with pytest.raises(ZeroDivisionError):
        convert(archives, tmp_path, workers=1, allow_incomplete=True)
    Workspace(tmp_path, "5.1.0").dataset.mkdir(parents=True, exist_ok=True)
    monkeypatch.undo()
    (modules,) = pool.run(modules_after, tasks, 1)
    pool.shut_down()
    assert "PIL" in modules
    assert "converter.shards" in modules
    assert not {"tensorflow", "tensorflow_datasets"} & set(modules)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['imagenet-convert', '--help']\n"
        "from converter.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'tensorflow', 'tensorflow_datasets', 'numpy', 'joblib'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.splitlines()[-1] == "[]"
