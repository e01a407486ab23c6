"""What people read: refusals that fit a screen, commands that paste, a log that never matters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from converter import convert, osal, pool
from converter.cli import app
from converter.errors import Interrupted, OutputError, SourceError, UsageError
from converter.findings import Finding, describe
from converter.index import Index
from converter.journal import Journal
from converter.output import command_line, output_errors
from converter.progress import PlainProgress
from converter.scan import ROW
from tests.system import not_on_windows
from tests.tarmaker import nested, tar
from tests.world import INCOMPLETE, TRAIN, VAL, World, in_this_process

__all__ = ["in_this_process"]  # fixtures


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "my data").mkdir()
    return World(tmp_path / "my data")


def command(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def suggested(said: str) -> list[str]:
    """Returns the command of this package that stands on a line of its own, or in backquotes."""
    found = re.search(r"(?:^ +|`)imagenet-convert ([^`\n]+)", said, re.MULTILINE)
    assert found, said
    return shlex.split(found[1])


@pytest.mark.parametrize("place", ["absent/x.log", "."])
def test_a_log_that_cannot_be_opened_is_an_error_of_the_output(world: World, place: str) -> None:
    code, said = world.run(INCOMPLETE, "--log-file", str(world.source / place))
    assert code == 4
    assert f"error: cannot write {world.source}" in said
    assert "Check the path" in said
    assert "Finished shards" not in said


@not_on_windows("there is no /dev/full")
def test_a_log_that_fails_does_not_matter(world: World) -> None:
    code, said = world.run(INCOMPLETE, "--log-file", "/dev/full")
    assert code == 0
    assert said.count("/dev/full cannot be written any more: No space left on device") == 1
    world.assert_right()


def test_every_line_of_the_log_has_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("converter.progress._LINE_EVERY_SECONDS", 0.0)
    log = world.source / "log"
    world.run(INCOMPLETE, "--log-file", str(log), "--quiet")
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    shards = [line[20:] for line in lines if "Shards: " in line]
    assert len(shards) == 3  # two splits of a shard each, and the end
    assert shards[0].startswith("Shards: 9 of 21 images")
    assert any("Load it: tfds.load" in line for line in lines)


def test_a_refusal_fits_a_screen_and_names_the_command_that_lists_all(world: World) -> None:
    code, said = world.run()
    assert code == 3
    assert "997 of the 1,000 train classes are missing" in said
    assert "... and 837 more" in said  # 20 lines of 8
    assert len(said.splitlines()) < 45
    arguments = suggested(said)
    assert arguments == ["inspect", "--source", str(world.source)]
    code, listed = command(*arguments)
    assert code == 3
    assert len(re.findall(r"\bn\d{8}\b", listed)) == 1000


def test_a_split_that_is_missing_can_be_done_without() -> None:
    findings = (Finding("missing-split", 1, ("train",)),)
    index = Index((), {"validation": np.zeros(1, ROW)}, findings)
    with pytest.raises(SourceError) as error:
        index.refuse_unless_sound(False, "imagenet-convert inspect")
    assert "splits without an archive: 1" in str(error.value)
    assert "add --splits validation." in str(error.value)
    assert "add --allow-incomplete." in str(error.value)
    index.refuse_unless_sound(True, "")


def test_a_very_long_place_is_cut_where_not_all_is_listed() -> None:
    finding = Finding("missing-images", 1, ("9" * 5000,))
    assert len(describe([finding], lines=20)) < 1100
    assert len(describe([finding])) > 5000


def test_suggested_commands_can_be_pasted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run(INCOMPLETE)[0] == 0
    code, said = command("--source", world.source, "--out", world.out, INCOMPLETE)
    assert code == 4
    assert suggested(said) == ["verify", str(world.out)]
    assert command(*suggested(said))[0] == 0
    monkeypatch.setattr(osal.console, "WINDOWS", True)
    assert command_line("verify", "C:\\my data") == 'imagenet-convert verify "C:\\my data"'
    assert command_line("verify", "C:\\data") == "imagenet-convert verify C:\\data"


def test_shards_are_only_said_to_be_kept_where_there_can_be_some(tmp_path: Path) -> None:
    work = tmp_path / "incomplete.imagenet-convert_5.1.0"
    for path, kept in ((tmp_path / "x", False), (work / "x", True)):
        for error in (OSError(28, "full"), OSError(13, "denied")):
            with pytest.raises(OutputError) as raised, output_errors(path):
                raise error
            assert ("Finished shards are kept" in str(raised.value)) is kept
    work.mkdir()
    with pytest.raises(OutputError, match="kept"), output_errors(tmp_path / "5.1.0"):
        raise OSError(13, "denied")


def test_the_summary_says_what_the_speed_is_of(world: World) -> None:
    said = world.run(INCOMPLETE)[1]
    assert re.search(r"21 images in \d+ s, of which \d+ s writing shards \([\d,]+ images/s\)", said)


def test_a_run_that_joins_says_so(world: World) -> None:
    assert world.run(INCOMPLETE, "--splits", "train")[0] == 0
    result = command("--source", world.source, "--out", world.out, INCOMPLETE)
    assert result[0] == 0
    assert "Joined validation to the dataset, which held train" in result[1]


def test_a_worker_that_dies_is_mentioned(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deaths = iter([True])

    def run(function: Callable[[Any], Any], tasks: Any, workers: int) -> Iterator[Any]:
        for task in tasks:
            yield function(task)
            if function.__name__ == "write_shard" and next(deaths, False):
                raise pool.WorkerDied("killed")

    monkeypatch.setattr(pool, "run", run)
    convert(world.source, world.out, allow_incomplete=True, progress=PlainProgress())
    said = capsys.readouterr().err
    assert said.count("A worker process ended unexpectedly; its shards are tried again") == 1
    world.assert_right()


def test_a_shard_that_was_journaled_as_the_signal_came_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Callable[[Journal, dict[str, Any]], None] = Journal._take

    def take(journal: Journal, entry: dict[str, Any]) -> None:
        if "shard" in entry and journal.runs and not journal.runs[-1].get("ended"):
            monkeypatch.setattr(Journal, "_take", taken)
            raise Interrupted("now")
        taken(journal, entry)

    monkeypatch.setattr(Journal, "_take", take)
    code, said = world.run(INCOMPLETE)
    assert code == 130
    assert "interrupted: 1 of 2 shards are done" in said


def test_what_was_meant_by_a_split(world: World) -> None:
    code, said = world.run("--splits", "train,val")
    assert code == 2
    assert "not 'train,val'; is train,validation meant?" in said
    assert command("inspect", "--source", world.source, "--splits", "all")[0] == 2
    report = convert(world.source, world.out, splits="validation", allow_incomplete=True)
    assert list(report.splits) == ["validation"]
    with pytest.raises(UsageError, match="workers must be a number from 1, not '2'"):
        convert(world.source, world.out, workers="2")  # type: ignore[arg-type]


def test_version_flags_and_quiet(world: World) -> None:
    assert re.fullmatch(r"imagenet-convert \d+\.\d+\.\d+\n", command("--version")[1])
    for line in command("--help")[1].splitlines():
        assert "<bool>" not in line or "--help" in line
    world.put(train=nested(TRAIN), val=tar(VAL))
    code, said = command("inspect", "--source", world.source, "--quiet")
    assert code == 3
    assert said.startswith("error: the source is not ready to convert: archives shorter than")
    assert len(said.splitlines()) == 1
    code, said = command("inspect", "--source", world.source, "--quiet", "--json")
    assert said.startswith("{")
    assert "imagenet-demo in the current one" in " ".join(
        re.sub("[^ -~]", " ", command("demo", "--help")[1]).split()
    )


def test_a_quiet_demo_says_where_its_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("converter.demo_run.run_demo", lambda out, workers, progress: "much")
    monkeypatch.chdir(tmp_path)
    assert command("demo", "--quiet") == (0, f"{tmp_path / 'imagenet-demo'}\n")
    assert command("demo", "--quiet", "--out", "x") == (0, f"{tmp_path / 'x'}\n")
    assert command("demo") == (0, "much\n")
