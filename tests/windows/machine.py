"""The Windows machine that wine makes: its drives, its programs, its terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass(frozen=True)
class Done:
    """A program that ended.

    Attributes:
        code: its exit code.
        out: what it wrote to stdout, on a terminal everything.
        err: what it wrote to stderr.
    """

    code: int
    out: bytes
    err: bytes = b""

    @property
    def said(self) -> str:
        return (self.out + self.err).decode("ascii").replace("\r\n", "\n")


class Machine:
    """A set-up made by setup.sh.

    Args:
        root: its folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.c = root / "prefix" / "drive_c"
        self.command = str(root / "python" / "Scripts" / "imagenet-convert.exe")
        self.python = str(root / "python" / "python.exe")
        self.japanese = {"LOCPATH": str(root / "locale"), "LC_ALL": "ja_JP.UTF-8"}

    def run(
        self, *command: str, timeout: float = 200, environment: dict[str, str] | None = None
    ) -> Done:
        """Runs a program whose output goes to pipes."""
        done = subprocess.run(
            [self.root / "run", *command],
            cwd=self.c,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def batch(self, *lines: str, timeout: float = 200) -> Done:
        """Runs lines as cmd takes them, to the letter."""
        script = self.c / "lines.bat"
        name = "imagenet-convert"
        script.write_text(
            "\r\n".join(["@echo off", *(re.sub(f"^{name}", self._callable, ln) for ln in lines)])
            + "\r\n",
            encoding="ascii",
        )
        return self.run("cmd", "/c", r"C:\lines.bat", timeout=timeout)

    def _callable(self, _: re.Match[str]) -> str:
        return '"Z:' + self.command.replace("/", "\\") + '"'

    def on_terminal(
        self,
        *command: str,
        presses: Callable[[], bool] = lambda: False,
        timeout: float = 200,
        environment: dict[str, str] | None = None,
    ) -> Done:
        """Runs a program on a terminal of its own.

        Args:
            command: the program and its arguments.
            presses: asked now and then; Ctrl-C is pressed once when it says so.
            timeout: in seconds.
            environment: added to that of this process.
        """
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.c)
            os.environ.update(environment or {})
            os.execv(self.root / "run", [str(self.root / "run"), *command])
        output, pressed, end = b"", False, time.monotonic() + timeout
        while True:
            if not pressed and presses():
                pressed = True
                os.write(terminal, b"\x03")
            if select.select([terminal], [], [], 0.02)[0]:
                try:
                    data = os.read(terminal, 1 << 16)
                except OSError:  # Linux says so when the other side is gone
                    break
                if not data:
                    break
                output += data
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                break
        _, status = os.waitpid(child, 0)
        os.close(terminal)
        return Done(os.waitstatus_to_exitcode(status), _CONTROLS.sub(b"", output))

    @contextlib.contextmanager
    def drive(self, letter: str, folder: Path) -> Iterator[None]:
        """Makes a folder a drive, as `subst` does, while the block runs."""
        link = self.root / "prefix" / "dosdevices" / f"{letter}:"
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        try:
            yield
        finally:
            link.unlink()

    @contextlib.contextmanager
    def share(self, server: str, name: str, folder: Path) -> Iterator[None]:
        r"""Makes a folder the share `\\server\name` while the block runs."""
        link = self.root / "prefix" / "dosdevices" / "unc" / server / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        try:
            yield
        finally:
            link.unlink()

    def folder(self, name: str) -> Path:
        """Returns an empty folder on drive C."""
        path = self.c / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path
