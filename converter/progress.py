"""What a person sees while it runs: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final

from converter.errors import printable
from converter.output import output_errors

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_LINE_EVERY_SECONDS: Final = 15.0


class Step:
    """One step under way. This base class shows nothing."""

    def advance(self, items: int, size: int = 0) -> None:
        """Counts what was finished.

        Args:
            items: images, or whatever the step counts.
            size: their bytes.
        """


class Progress:
    """Shows the steps of a conversion. This base class shows nothing."""

    @contextlib.contextmanager
    def step(self, name: str, total: int, unit: str, done: int = 0) -> Iterator[Step]:
        """Shows a step while the block runs.

        Args:
            name: what is done, such as "Index".
            total: how many items it has, 0 where that is not known.
            unit: what the items are, such as "images".
            done: how many of them were finished by an earlier run.
        """
        yield Step()

    def say(self, text: str) -> None:
        """Shows a line that matters to the person."""

    def result(self, text: str) -> None:
        """Prints the result, to stdout."""
        _print(text, sys.stdout)

    def note(self, text: str) -> None:
        """Keeps what is not shown, where there is a log."""

    def fail(self, text: str) -> None:
        """Prints an error, to stderr."""
        _print(f"error: {text}", sys.stderr)


class _PlainStep(Step):
    def __init__(
        self, name: str, total: int, unit: str, done: int, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._name, self._total, self._unit = name, total, unit
        self._earlier, self._done, self._bytes = done, done, 0
        self._began = self._said = time.monotonic()

    def advance(self, items: int, size: int = 0) -> None:
        self._done += items
        self._bytes += size
        now = time.monotonic()
        if now - self._said >= _LINE_EVERY_SECONDS:
            self._said = now
            self._say(self._line(now))

    def end(self) -> None:
        self._say(self._line(time.monotonic()))

    def _line(self, now: float) -> str:
        seconds = max(now - self._began, 1e-6)
        rate = (self._done - self._earlier) / seconds
        whole = f" of {self._total:,}" if self._total else ""
        text = f"{self._name}: {self._done:,}{whole} {self._unit}, {rate:,.0f}/s"
        if self._bytes:
            text += f", {self._bytes / 1e6 / seconds:,.0f} MB/s"
        if rate > 0 and self._done < self._total:
            text += f", {duration((self._total - self._done) / rate)} left"
        return text


class PlainProgress(Progress):
    """A line to stderr at the end of each step, and every 15 seconds in between."""

    @contextlib.contextmanager
    def step(self, name: str, total: int, unit: str, done: int = 0) -> Iterator[Step]:
        step = _PlainStep(name, total, unit, done, self.say)
        yield step
        step.end()

    def say(self, text: str) -> None:
        _print(text, sys.stderr)


class _BarStep(Step):
    def __init__(self, bars: RichProgress, task: TaskID, done: int) -> None:
        self._bars, self._task = bars, task
        self._earlier, self._done, self._bytes = done, done, 0
        self._began = time.monotonic()

    def advance(self, items: int, size: int = 0) -> None:
        self._done += items
        self._bytes += size
        seconds = max(time.monotonic() - self._began, 1e-6)
        rate = f"{(self._done - self._earlier) / seconds:,.0f}/s"
        if self._bytes:
            rate += f" {self._bytes / 1e6 / seconds:,.0f} MB/s"
        self._bars.update(self._task, completed=self._done, rate=rate)


class BarProgress(Progress):
    """A bar per step on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def step(self, name: str, total: int, unit: str, done: int = 0) -> Iterator[Step]:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        with RichProgress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]} {task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        ) as bars:
            task = bars.add_task(name, total=total or None, completed=done, unit=unit, rate="")
            yield _BarStep(bars, task, done)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)


class _Log:
    """A file that lines are appended to, each with the time, for as long as that works.

    Unbuffered, because what could not be written must not come up again when it is closed.
    """

    def __init__(self, path: Path, shown: Progress) -> None:
        self._path, self._shown = path, shown
        with output_errors(path):
            self._file: BinaryIO | None = open(path, "ab", buffering=0)  # noqa: SIM115

    def add(self, text: str) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        lines = "".join(f"{now} {line}\n" for line in text.splitlines())
        if self._file is None:
            return
        try:
            self._file.write(lines.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self.close()
            self._shown.say(
                f"{printable(str(self._path))} cannot be written any more: {error.strerror}. "
                "The work goes on without a log."
            )

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


class _LoggedProgress(Progress):
    """Shows everything as another does, and appends results, errors and lines to a file."""

    def __init__(self, shown: Progress, log: _Log) -> None:
        self._shown, self._log = shown, log

    @contextlib.contextmanager
    def step(self, name: str, total: int, unit: str, done: int = 0) -> Iterator[Step]:
        logged = _PlainStep(name, total, unit, done, self._log.add)
        with self._shown.step(name, total, unit, done) as step:
            yield _BothSteps(step, logged)
        logged.end()

    def say(self, text: str) -> None:
        self._shown.say(text)
        self._log.add(text)

    def result(self, text: str) -> None:
        self._shown.result(text)
        self._log.add(text)

    def note(self, text: str) -> None:
        self._log.add(text)

    def fail(self, text: str) -> None:
        self._shown.fail(text)
        self._log.add(f"error: {text}")


class _BothSteps(Step):
    def __init__(self, *steps: Step) -> None:
        self._steps = steps

    def advance(self, items: int, size: int = 0) -> None:
        for step in self._steps:
            step.advance(items, size)


@contextlib.contextmanager
def open_progress(quiet: bool, log_file: Path | None) -> Iterator[Progress]:
    """Opens what the command shows: nothing but errors, bars on a terminal, else plain lines.

    Args:
        quiet: show errors only.
        log_file: where to append it too.

    Raises:
        OutputError: the log file cannot be opened.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    shown = Progress() if quiet else BarProgress() if terminal else PlainProgress()
    if log_file is None:
        yield shown
        return
    log = _Log(log_file, shown)
    try:
        yield _LoggedProgress(shown, log)
    finally:
        log.close()


def _print(text: str, file: IO[str] | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed pipe must not end a conversion
        print(text, file=file, flush=True)


def duration(seconds: float) -> str:
    """Returns a length of time as a person would say it: `45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
