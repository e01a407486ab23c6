"""What a person sees: a Japanese console (cp932), pipes, terminals; Ctrl-C."""

from __future__ import annotations

import shutil

import pytest

from tests.windows.conftest import MANY, Archives
from tests.windows.machine import Machine

NAME = "\u30c7\u30fc\u30bf \U0001f40b \u00e9"
"""Kana, which cp932 has, and a whale and an accent, which it has not."""
SHOWN = r"\u30c7\u30fc\u30bf \U0001f40b \xe9"
SAY = "import locale, sys; print(locale.getpreferredencoding(False), sys.stdout.encoding)"


@pytest.fixture
def source(machine: Machine, plain: Archives) -> str:
    folder = machine.folder(NAME)
    shutil.copytree(plain.folder, folder, dirs_exist_ok=True)
    (folder / f"{NAME}.tar").write_bytes(b"junk")
    return f"C:\\{NAME}"


def test_the_console_is_one_of_cp932(machine: Machine) -> None:
    done = machine.run(machine.python, "-c", SAY, environment=machine.japanese)
    assert done.out.split() == [b"cp932", b"cp932"]


@pytest.mark.parametrize(
    "more", [{}, {"PYTHONUTF8": "1"}, {"PYTHONIOENCODING": "cp932:strict"}, {"NO_COLOR": "1"}]
)
@pytest.mark.parametrize("terminal", [False, True])
def test_names_that_the_console_lacks_are_escaped(
    machine: Machine, source: str, more: dict[str, str], terminal: bool
) -> None:
    run = machine.on_terminal if terminal else machine.run
    done = run(
        machine.command, "inspect", "--source", source, environment={**machine.japanese, **more}
    )
    assert done.code == 3, done.out
    said = "".join(done.said.split()) if terminal else done.said  # a terminal breaks lines
    assert ("".join(SHOWN.split()) if terminal else SHOWN) in said
    assert "Traceback" not in done.said


def test_a_conversion_on_a_terminal(machine: Machine, plain: Archives, source: str) -> None:
    out = machine.c / f"out {NAME}"
    shutil.rmtree(out, ignore_errors=True)
    done = machine.on_terminal(
        machine.command,
        *("--source", source, "--out", f"C:\\out {NAME}", "--workers", "2", "--allow-incomplete"),
        environment=machine.japanese,
    )
    assert done.code == 0, done.out
    assert (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_bytes() == plain.sums
    assert "Traceback" not in done.said


def test_help_and_usage_errors(machine: Machine) -> None:
    helped = machine.run(machine.command, "--help", environment=machine.japanese)
    assert helped.code == 0
    assert "--allow-incomplete" in helped.said
    wrong = machine.run(machine.command, f"--{NAME}", environment=machine.japanese)
    assert wrong.code == 2
    assert b"Traceback" not in wrong.err


SMALL_SHARDS = f"""
from converter import options, plan
limits = plan.ShardLimits{MANY}
options.ShardLimits = lambda: limits
from converter.cli import main
main()
"""


def test_ctrl_c_ends_it_and_the_same_command_goes_on(machine: Machine, many: Archives) -> None:
    folder = machine.folder("interrupted")
    shutil.copytree(many.folder, folder / "in")
    command = (
        *(machine.python, "-c", SMALL_SHARDS),
        *("--source", r"C:\interrupted\in", "--out", r"C:\interrupted\out"),
        *("--workers", "2", "--allow-incomplete"),
    )
    work = folder / "out" / "imagenet2012" / "incomplete.imagenet-convert_5.1.0" / "dataset"

    def some_are_written() -> bool:
        return any(work.glob("*.tfrecord-*"))

    done = machine.on_terminal(*command, presses=some_are_written)
    assert done.code == 130, done.out
    said = "".join(done.said.split())  # a terminal breaks lines
    assert "Runthesamecommandagaintocontinue" in said, said[-300:]
    assert "Traceback" not in done.said
    assert not (folder / "out" / "imagenet2012" / "5.1.0").exists()
    again = machine.run(*command)
    assert again.code == 0, again.said
    assert "Continuing: " in again.said
    final = folder / "out" / "imagenet2012" / "5.1.0"
    assert (final / "SHA256SUMS").read_bytes() == many.sums
