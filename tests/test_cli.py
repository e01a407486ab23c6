"""The command line: help, exit codes, what is printed where."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from converter import ConversionError, Report, convert
from converter.demo import DemoSize, make_archives
from converter.verify import verify
from tests.system import WINDOWS, fewer_on_windows, not_on_windows

TINY = DemoSize(
    images_per_class=1, validation=6, test=4, classes=4, width=32, height=24, mean_bytes=1000
)
INCOMPLETE = ("--allow-incomplete",)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, TINY)
    return folder


def command(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "converter", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def test_every_command_has_help_and_every_option_stands_in_the_readme() -> None:
    readme = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
    for name in ((), ("inspect",), ("verify",), ("demo",)):
        result = command(*name, "--help")
        assert result.returncode == 0
        assert "Usage:" in result.stdout
        if not name:
            for option in re.findall(r"--[a-z][a-z-]+", result.stdout):
                assert option in readme or option == "--help"
        else:
            assert f"imagenet-convert {name[0]}" in readme


def test_conversion_prints_paths_progress_and_summary(archives: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    result = command(
        "--source", archives, "--out", tmp_path, "--workers", "2", "--allow-incomplete",
        "--log-file", log,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    final = tmp_path / "imagenet2012" / "5.1.0"
    assert f"Load it: tfds.load('imagenet2012', data_dir={str(tmp_path)!r})" in result.stdout
    assert "14 images in" in result.stdout
    assert str(archives / "ILSVRC2012_img_train.tar") in result.stderr
    assert "Shards: 14 of 14 images" in result.stderr
    assert all(line in log.read_text(encoding="utf-8") for line in result.stdout.splitlines())
    report = json.loads((final / "conversion_report.json").read_text(encoding="utf-8"))
    assert {name: split["images"] for name, split in report["splits"].items()} == {
        "train": 4,
        "validation": 6,
        "test": 4,
    }
    again = command("--source", archives, "--out", tmp_path, "--allow-incomplete")
    assert again.returncode == 4
    assert "exists already" in again.stderr
    assert "--restart" in again.stderr
    assert "Warning" not in again.stderr  # such as joblib's about workers that were not needed
    sums = (final / "SHA256SUMS").read_bytes()
    anew = command("--source", archives, "--out", tmp_path, "--allow-incomplete", "--restart", "-q")
    assert (anew.returncode, anew.stdout, anew.stderr) == (0, "", "")
    assert (final / "SHA256SUMS").read_bytes() == sums
    assert [path.name for path in final.parent.iterdir()] == ["5.1.0"]


def test_the_tars_are_found_in_the_manual_folder_then_in_the_current_one(
    archives: Path, tmp_path: Path
) -> None:
    manual = tmp_path / "out" / "downloads" / "manual"
    manual.mkdir(parents=True)
    found = command("--out", tmp_path / "out", "--dry-run", "--allow-incomplete", cwd=archives)
    assert found.returncode == 0, found.stderr
    assert str(archives / "ILSVRC2012_img_val.tar") in found.stderr
    (manual / "ILSVRC2012_img_val.tar").write_bytes(
        (archives / "ILSVRC2012_img_val.tar").read_bytes()
    )
    found = command(
        "--out", tmp_path / "out", "--dry-run", "--allow-incomplete", "--splits", "validation",
        cwd=archives,
    )  # fmt: skip
    assert str(manual / "ILSVRC2012_img_val.tar") in found.stderr
    assert not (tmp_path / "out" / "imagenet2012").exists()


def test_wrong_input_gets_a_clear_error_and_leaves_nothing(archives: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "out", tmp_path / "empty"
    empty.mkdir()
    junk = tmp_path / "junk.tar"
    junk.write_bytes(b"junk" * 1000)
    cases: list[tuple[tuple[str | Path, ...], int, str]] = [
        (("--source", empty), 3, f"no ImageNet archive found in: {empty}"),
        (("--source", tmp_path / "absent"), 3, "does not exist"),
        (("--source", junk), 3, "is no ImageNet 2012 archive"),
        (("--source", archives), 3, "--allow-incomplete"),
        (("--source", archives, "--splits", "train,nonsense"), 2, "must be some of"),
        (("--source", archives, "--workers", "0"), 2, "--workers"),
        (("--source", archives, "--validate", "maybe"), 2, "--validate"),
        (("--nonsense",), 2, "--nonsense"),
    ]
    for options, code, text in fewer_on_windows(*cases, keep=3):
        result = command(*options, "--out", out)
        assert result.returncode == code, (options, result.stderr)
        assert text in " ".join(result.stderr.split()), options
        assert "Traceback" not in result.stderr
        assert not out.exists(), options


def test_the_api_raises_what_the_command_reports(archives: Path, tmp_path: Path) -> None:
    report = convert(archives, tmp_path, workers=1, allow_incomplete=True)
    assert isinstance(report, Report)
    assert (report.images, report.published) == (14, True)
    with pytest.raises(ConversionError, match="exists already") as error:
        convert(archives, tmp_path, allow_incomplete=True)
    assert error.value.exit_code == 4
    with pytest.raises(ConversionError, match="workers must be a number from 1"):
        convert(archives, tmp_path, workers=0)


def test_no_space_names_both_figures_and_the_mount(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(ConversionError, match=r"[\d,]+ bytes are needed and 1,000 are free") as no:
        convert(archives, tmp_path / "out", allow_incomplete=True)
    assert no.value.exit_code == 4


@not_on_windows("there is no /dev/full")
def test_closed_stdout_does_not_matter(archives: Path, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [
                sys.executable,
                "-m",
                "converter",
                "--source",
                archives,
                "--out",
                tmp_path,
                *INCOMPLETE,
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert b"Traceback" not in result.stderr
    assert (tmp_path / "imagenet2012" / "5.1.0" / "SHA256SUMS").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [["verify", "."], ["inspect", "--source", "."], ["--out", "o"]])
def test_every_command_ends_when_it_is_interrupted(
    tmp_path: Path, number: signal.Signals, command: list[str]
) -> None:
    """The moment is the import of numpy, which all need, long before any of them has an end."""
    (tmp_path / "numpy.py").write_text(
        f"import signal, time\nsignal.raise_signal({number:d})\ntime.sleep(60)\n",
        encoding="ascii",
    )
    done = subprocess.run(
        [sys.executable, "-m", "converter", *command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + number  # 130 and 143
    assert "interrupted. Run the same command again to continue." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_library_that_swallows_exceptions_swallows_no_interruption(
    archives: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tensorflow_datasets' and 'loky' not in ' '.join(sys.orig_argv):\n"
        "            try:\n"
        f"                signal.raise_signal({number:d})\n"
        "            except Exception:\n"
        "                pass\n"
        "sys.meta_path.insert(0, Finder())\n",
        encoding="ascii",
    )
    done = subprocess.run(
        [sys.executable, "-m", "converter", "--source", str(archives), "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.getcwd()))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_verbose_shows_a_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "converter", "verify", str(tmp_path), "--verbose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert "error: no imagenet2012 dataset in" in done.stderr


@not_on_windows("there is no shell that closes them")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(archives: Path, tmp_path: Path, closed: str) -> None:
    line = f'"{sys.executable}" -m converter --source "{archives}" --out "{tmp_path}" '
    done = subprocess.run(
        ["sh", "-c", line + f"--allow-incomplete --workers 1 {closed}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verify(tmp_path, workers=1).require_sound()


@pytest.mark.parametrize("out", ["d" * 300, "dddddddddd/" * 500])
def test_a_path_that_is_too_long_is_named(archives: Path, tmp_path: Path, out: str) -> None:
    done = command("--source", archives, "--out", tmp_path / out, *INCOMPLETE)
    assert done.returncode == 4
    assert ("LongPathsEnabled" if WINDOWS else "File name too long") in done.stderr
    assert "Traceback" not in done.stderr
