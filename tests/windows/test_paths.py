"""Paths as Windows has them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.windows.conftest import Archives
from tests.windows.machine import Done, Machine

OPTIONS = ("--allow-incomplete", "--workers", "1")


def convert(machine: Machine, source: str, out: str, *options: str) -> Done:
    return machine.run(
        machine.command, "--source", source, "--out", out, *OPTIONS, *options, timeout=280
    )


@pytest.mark.parametrize(
    ("source", "out", "folder"),
    [
        (r"C:\my archives", r"C:\my data sets", "my data sets"),
        ("C:\\\u30c0\u30a6\u30f3\u30ed\u30fc\u30c9", "C:\\\u5b66\u7fd2", "\u5b66\u7fd2"),
        ("C:/slashes/in", "C:/slashes/out/", "slashes/out"),
        ("\\\\?\\C:\\literal\\in", "\\\\?\\C:\\literal\\out", "literal/out"),
        ("relative", "relative\\..\\beside", "beside"),
    ],
)
def test_odd_paths(machine: Machine, plain: Archives, source: str, out: str, folder: str) -> None:
    inside = source.replace("\\\\?\\", "").replace("C:", "").replace("\\", "/").strip("/")
    shutil.rmtree(machine.c / folder, ignore_errors=True)
    shutil.rmtree(machine.folder(inside))
    shutil.copytree(plain.folder, machine.c / inside)
    done = convert(machine, source, out)
    assert done.code == 0, done.said
    made = machine.c / folder / "imagenet2012" / "5.1.0"
    assert (made / "SHA256SUMS").read_bytes() == plain.sums
    assert [path.name for path in made.parent.iterdir()] == ["5.1.0"]


def test_the_root_of_a_drive(machine: Machine, plain: Archives, tmp_path: Path) -> None:
    shutil.copytree(plain.folder, tmp_path, dirs_exist_ok=True)
    with machine.drive("d", tmp_path):
        done = convert(machine, "D:\\", "D:\\")
    assert done.code == 0, done.said
    assert (tmp_path / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_bytes() == plain.sums


def test_a_share_of_a_server(machine: Machine, plain: Archives, tmp_path: Path) -> None:
    shutil.copytree(plain.folder, tmp_path / "my archives")
    with machine.share("nas", "data", tmp_path):
        done = convert(machine, r"\\nas\data\my archives", r"\\nas\data\sets")
        assert done.code == 0, done.said
        checked = machine.run(machine.command, "verify", "//nas/data/sets", timeout=280)
        assert checked.code == 0, checked.said
    assert r"data_dir='\\\\nas\\data\\sets'" in done.said
    made = tmp_path / "sets" / "imagenet2012" / "5.1.0"
    assert (made / "SHA256SUMS").read_bytes() == plain.sums


def test_a_backslash_before_the_closing_quote_is_explained(machine: Machine) -> None:
    done = machine.batch(r'imagenet-convert --source "C:\my archives\" --out "C:\Datasets"')
    assert done.code == 2
    assert "a backslash before the closing quote makes the quote part of the path" in done.said


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--out", r"C:\data\NUL", "'NUL' is the name of a device on Windows"),
        ("--source", r"C:\con.tar", "'con.tar' is the name of a device on Windows"),
        ("--out", r"C:\data.", "Windows drops the dot at the end of the name 'data.'"),
        ("--staging", r"C:\data \x", "Windows drops the space at the end of the name 'data '"),
        (
            "--out",
            "C:\\" + "d" * 200,
            "characters, and this Windows takes 259. Choose a shorter folder, or enable",
        ),
    ],
)
def test_impossible_paths_are_refused_before_anything_is_written(
    machine: Machine, plain: Archives, option: str, path: str, said: str
) -> None:
    source = "Z:" + str(plain.folder).replace("/", "\\")
    before = sorted(machine.c.iterdir())
    done = machine.run(machine.command, "--source", source, "--out", r"C:\none", option, path)
    assert done.code in (2, 4)
    assert said in done.said
    assert "Traceback" not in done.said
    assert sorted(machine.c.iterdir()) == before


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    disk = tmp_path_factory.mktemp("disk")
    mounted = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_the_drive_that_lacks_the_space_is_named(
    machine: Machine, plain: Archives, small_disk: Path
) -> None:
    """Of a drive, of a folder that is a drive (`subst`), and of a link to a folder of a drive."""
    source = "Z:" + str(plain.folder).replace("/", "\\")
    (small_disk / "below").mkdir(exist_ok=True)
    link = machine.c / "linked"
    link.unlink(missing_ok=True)
    link.symlink_to(small_disk)
    with machine.drive("e", small_disk), machine.drive("f", small_disk / "below"):
        for out in ("E:\\", r"E:\sets", r"F:\sets", r"C:\linked\sets"):
            done = convert(machine, source, out)
            assert done.code == 4, done.said
            place = "" if out.startswith("C") else f"{out[:2]}\\"
            assert f"not enough space on {place}" in done.said
    link.unlink()
