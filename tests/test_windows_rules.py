"""What Windows forbids, imitated: the real thing is tested by tests/windows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from converter import convert, osal, pool
from converter.demo import DemoSize, make_archives
from converter.errors import OutputError, UsageError
from converter.options import absolute
from converter.progress import PlainProgress
from tests import windows_rules
from tests.system import not_on_windows

SIZE = DemoSize(
    images_per_class=2, validation=20, test=4, classes=6, width=32, height=24, mean_bytes=1000
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE, workers=2)
    return folder


def under_the_rules(tmp_path: Path, *arguments: str | Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir(exist_ok=True)
    shutil.copy(windows_rules.__file__, rules / "sitecustomize.py")
    checkout = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "converter", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(rules), str(checkout)))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@not_on_windows("these rules need no imitation")
def test_nothing_open_is_renamed_or_removed(archives: Path, tmp_path: Path) -> None:
    """First a split, then the others joined to it, then all of it replaced, also staged."""
    out = tmp_path / "out"
    common = ("--out", out, "--workers", "2", "--allow-incomplete")
    named = ("--source", archives)
    under_the_rules(tmp_path, *named, *common, "--splits", "validation")
    under_the_rules(tmp_path, *named, *common)
    under_the_rules(tmp_path, *named, *common, "--restart")
    under_the_rules(tmp_path, *named, *common, "--restart", "--io", "staged")
    # On Linux the lock file is removed while it is open, which the rules forbid.
    left = {path.name for path in (out / "imagenet2012").iterdir() if path.suffix != ".lock"}
    assert left == {"5.1.0"}
    report = convert(archives, tmp_path / "plain", workers=1, allow_incomplete=True)
    sums = Path(report.dataset_dir, "SHA256SUMS").read_bytes()
    assert (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_bytes() == sums


@not_on_windows("these rules need no imitation")
def test_the_imitation_refuses(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with open(tmp_path / "folder" / "file", "wb") as file:
        with pytest.raises(PermissionError):
            windows_rules.replace(tmp_path / "folder", tmp_path / "other")
        with pytest.raises(PermissionError):
            windows_rules.unlink(file.name)
    windows_rules.replace(tmp_path / "folder", tmp_path / "other")
    windows_rules.unlink(tmp_path / "other" / "file")


def held(times: int, real: Callable[..., None], error: OSError) -> Callable[..., None]:
    """Returns a call that fails as often, as with a file that somebody else holds."""
    left = [times]

    def call(*arguments: object, **options: object) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        real(*arguments, **options)

    return call


def move(folder: Path) -> None:
    osal.replace(folder / "file", folder / "other")


def remove(folder: Path) -> None:
    osal.remove(folder / "file")


@pytest.mark.parametrize(("action", "call"), [(move, "replace"), (remove, "unlink")])
def test_a_scanner_that_holds_a_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[Path], None], call: str
) -> None:
    monkeypatch.setattr(osal.files, "WINDOWS", True)
    monkeypatch.setattr(osal.files, "PAUSES_SECONDS", (0.001,) * 6)
    error, real = PermissionError(13, "held"), getattr(os, call)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(os, call, held(6, real, error))
    action(tmp_path)
    assert not (tmp_path / "file").exists()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(os, call, held(7, real, error))
    with pytest.raises(PermissionError):
        action(tmp_path)
    assert (tmp_path / "file").exists()


def test_a_folder_is_removed_when_the_last_file_in_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osal.files, "WINDOWS", True)
    monkeypatch.setattr(osal.files, "PAUSES_SECONDS", (0.001,) * 6)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"")
    monkeypatch.setattr(os, "rmdir", held(3, os.rmdir, OSError(41, "Directory not empty")))
    osal.remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    with pytest.raises(FileNotFoundError):
        osal.remove_folder(tmp_path / "folder")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (r"C:\Datasets", ""),
        ("C:/Data sets/", ""),
        ("C:\\", ""),
        ("C:", ""),
        (r"..\out", ""),
        (r"\\server\share\Datasets", ""),
        ("\\\\?\\C:\\nul", ""),
        ("C:\\\u30c7\u30fc\u30bf", ""),
        (r"C:\console\nullable\com\auxiliary", ""),
        (r"C:\nul", "'nul' is the name of a device"),
        (r"C:\data\Com1.tar\x", "'Com1.tar' is the name of a device"),
        ("CON", "'CON' is the name of a device"),
        ("C:\\aux .txt", "'aux .txt' is the name of a device"),
        ("C:\\lpt\u00b9", r"'lpt\xb9' is the name of a device"),
        (r"C:\Datasets.", "drops the dot at the end of the name 'Datasets.'. Leave it away"),
        (r"C:\my \out", "drops the space at the end of the name 'my '. Leave it away"),
        (r"C:\what?", "Windows has no names with ? in them"),
        (r"C:\a:b", "Windows has no names with : in them"),
        ('C:\\my data" --out C:\\x', "a backslash before the closing quote"),
    ],
)
def test_paths_that_windows_does_not_have(
    monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.setattr(osal.names, "WINDOWS", True)
    refusal = osal.name_refusal(path)
    assert said in refusal
    assert bool(refusal) is bool(said)
    assert refusal.isascii()
    if said:
        with pytest.raises(UsageError):
            absolute(path)
    monkeypatch.setattr(osal.names, "WINDOWS", False)
    assert osal.name_refusal(path) == ""


def test_paths_that_are_too_long_are_found_before_anything_is_written(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osal.names, "WINDOWS", True)
    monkeypatch.setattr(osal.names, "_any_length", lambda: False)
    out = tmp_path
    while len(str(out)) < 170:
        out /= "deep"
    with pytest.raises(OutputError, match=r"would have \d+ characters, .* takes 259. .*LongPaths"):
        convert(archives, out, workers=1, allow_incomplete=True)
    report = convert(archives, out, workers=1, allow_incomplete=True, dry_run=True)
    assert any("A run would be refused: the path" in line for line in report.outlook)
    assert not (tmp_path / "deep").exists()
    with pytest.raises(OutputError, match=r"deep.*would have \d+ characters"):
        convert(archives, tmp_path, workers=1, allow_incomplete=True, staging=out / ("d" * 60))
    monkeypatch.setattr(osal.names, "_any_length", lambda: True)
    assert osal.length_refusal("C:\\" + "d" * 300) == ""


def test_no_more_workers_than_the_system_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def parallel(n_jobs: int, **_: object) -> Callable[[object], list[object]]:
        started.append(n_jobs)
        return lambda tasks: []

    monkeypatch.setattr(osal, "MOST_WORKERS", 61)
    monkeypatch.setattr("joblib.Parallel", parallel)
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)
    assert list(pool.run(len, [[]], 200)) == []
    assert started == [61]
    assert pool.default_workers() == 61


def test_that_fewer_workers_are_used_is_said(
    archives: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(osal, "MOST_WORKERS", 2)
    shown = PlainProgress()
    convert(archives, tmp_path, workers=3, allow_incomplete=True, dry_run=True, progress=shown)
    assert "This system allows 2 workers, so that many are used" in capsys.readouterr().err
