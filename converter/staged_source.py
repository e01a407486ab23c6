"""One source that is read once: the pass over it, what it leaves, and going on with it later.

The folder of a source holds its staged files, `index.npz` (what they hold) and `state.json`, which
says how far the pass has come. The state is written last: what it does not vouch for is cut off or
done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from converter import osal
from converter.buckets import SUFFIX, Buckets
from converter.checksum import Checksum, official_archive
from converter.errors import (
    Interrupted,
    ResumeError,
    SourceChangedError,
    SourceError,
    SourceReadError,
    printable,
)
from converter.findings import Findings
from converter.index import Index
from converter.journal import load_index, save_index
from converter.output import make_folder, output_errors, write_durably
from converter.progress import Progress, Step
from converter.scan import Rows, Scan, scan_passing
from converter.sources.base import STREAM, Part, Recognised, SourceFile
from converter.sources.staged import staged_file
from converter.sources.stream import STDIN, Stream, StreamReader
from converter.sources.stream_layout import PassingTar

STATE: Final = "state.json"
_CHECKPOINT_BYTES: Final = 16 << 30
_SAID_EVERY_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class StagedSource:
    """A source and the folder that it is staged in.

    Attributes:
        source: what it was taken for.
        folder: where its staged files lie.
    """

    source: Recognised
    folder: Path

    @property
    def path(self) -> str:
        """The file or pipe."""
        return self.source.part.path

    @property
    def is_file(self) -> bool:
        """Whether it can be read again."""
        return self.path != STDIN and os.path.isfile(self.path)

    @property
    def size(self) -> int:
        """Length of the file in bytes, 0 where it is not known."""
        return os.path.getsize(self.path) if self.is_file else 0

    @property
    def bytes_to_stage(self) -> int:
        """What an earlier pass has not made durable; 0 where the length is not known."""
        durable: dict[str, int] = self.state().get("durable", {})
        return max(0, self.size - sum(durable.values()))

    def state(self) -> dict[str, Any]:
        """Returns how far earlier passes have come over the source as it is now."""
        try:
            state = json.loads((self.folder / STATE).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return {}
        if not isinstance(state, dict):
            return {}
        return state if state.get("complete") and not self.is_file else self._if_unchanged(state)

    def _if_unchanged(self, state: dict[str, Any]) -> dict[str, Any]:
        return state if self.is_file and state.get("file") == self._file() else {}

    def _file(self) -> list[int]:
        """Size and time of the file, by which a change is noticed."""
        if not self.is_file:
            return []
        now = os.stat(self.path)
        return [now.st_size, now.st_mtime_ns]

    @property
    def is_complete(self) -> bool:
        """Whether the pass has been made."""
        return bool(self.state().get("complete"))

    def discard(self) -> None:
        """Removes what was staged.

        Raises:
            OutputError: it cannot be removed.
        """
        if self.folder.exists():
            with output_errors(self.folder):
                osal.remove_folder(self.folder)

    def scanned(self) -> tuple[Part, Scan]:
        """Returns what the staged files hold.

        Raises:
            SourceError: what was noted of it cannot be read.
        """
        state = self.state()
        index = load_index(self.folder, {"token": state.get("token")})
        if index is None:
            raise SourceError(
                f"what was staged in {printable(str(self.folder))} cannot be read; start anew with "
                "--restart"
            )
        part = replace(self.source.part, kind=STREAM)
        return part, Scan(index.splits, (), index.findings, index.files)

    @property
    def checksum(self) -> Checksum:
        """The digest of the tar, as it was unpacked, compared with the official ones."""
        state = self.state()
        official = official_archive(state["sha256"], state["md5"])
        return Checksum(self.path, state["sha256"], official)

    def identity(self) -> list[Any]:
        """Returns what tells this source from another, for the journal."""
        state = self.state()
        return [os.path.basename(self.path), state["bytes"], state["sha256"]]

    def refuse_other_input(self) -> None:
        """Checks that standard input, where there is any, begins as what was staged from it.

        Raises:
            ResumeError: it does not.
        """
        if self.path != STDIN or os.isatty(0):
            return
        try:
            stream = Stream(STDIN)
        except SourceReadError:
            return
        stream.close()
        if stream.head and _digest(stream.head) != self.state()["head"]:
            raise ResumeError(
                "standard input is not what was staged from it before. To convert it instead, "
                "start anew with --restart; to go on, give the same again or nothing."
            )

    def stage(self, progress: Progress, restart: bool) -> None:
        """Makes the pass, from the last checkpoint where there is one.

        Raises:
            SourceError: it is damaged, or holds no images of the split that it was given for.
            OutputError: the staged files cannot be written.
            Interrupted: Ctrl-C or SIGTERM.
        """
        try:
            _Pass(self, restart).run(progress)
        except BaseException as error:
            goes_on = bool(self.state())
            if not goes_on:
                shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, Interrupted):
                again = "Run the same command again"
                if not self.is_file:
                    again += ", with the pipe from its beginning: what has passed is not kept"
                elif goes_on:
                    again += ": it reads the file again, and writes on from the last checkpoint"
                raise type(error)(
                    f"interrupted while {printable(self.path)} was staged. {again}."
                ) from None
            raise


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()


class _Pass:
    """One pass over a source."""

    def __init__(self, staged: StagedSource, restart: bool) -> None:
        self._staged = staged
        self._state = {"restart": restart, "file": staged._file(), **staged.state()}
        self._checked = 0
        self._said = 0

    def run(self, progress: Progress) -> None:
        staged = self._staged
        durable = self._cut_back()
        stream = Stream(staged.path)
        reader = stream.reader(with_md5="test" in staged.source.splits)
        self._stream, self._buckets = stream, Buckets(staged.folder, staged.path, durable)
        try:
            with progress.step("Stage", staged.size >> 20, "MB") as step:
                self._step: Step = step
                source = PassingTar(staged.source.part, reader, self)
                scans = scan_passing(staged.source.part, source)
                self._finish(reader, scans)
        finally:
            reader.close()
            self._buckets.close()
            stream.close()

    def _cut_back(self) -> dict[str, int]:
        """Cuts the staged files to what is sure; returns their lengths."""
        folder = self._staged.folder
        durable: dict[str, int] = self._state.get("durable", {})
        if not all(_is_there(folder / name, length) for name, length in durable.items()):
            durable = {}
        if not durable:
            self._staged.discard()
        make_folder(folder)
        with output_errors(folder):
            for path in folder.glob(f"*{SUFFIX}"):
                if path.name not in durable:
                    osal.remove(path)
            for name, length in durable.items():
                os.truncate(folder / name, length)
        return durable

    def add(self, canonical: str, data: bytes, offset: int) -> tuple[SourceFile, int]:
        """Takes an image as it passes (see `stream_layout.Sink`)."""
        placed = self._buckets.add(canonical, data, offset)
        if self._stream.read - self._said >= _SAID_EVERY_BYTES:
            self._advance()
        if self._staged.is_file and self._buckets.added - self._checked >= _CHECKPOINT_BYTES:
            self._checked = self._buckets.added
            self._write_state(durable=self._buckets.make_durable())
        return placed

    def _advance(self) -> None:
        read = self._stream.read
        self._step.advance((read >> 20) - (self._said >> 20), read - self._said)
        self._said = read

    def _write_state(self, **more: Any) -> None:
        self._state.update(more)
        text = json.dumps(self._state, ensure_ascii=True)
        write_durably(self._staged.folder / STATE, text.encode("ascii"))

    def _finish(self, reader: StreamReader, scans: list[tuple[Part, Scan]]) -> None:
        staged = self._staged
        findings = Findings()
        for _, scan in scans:
            findings.update(scan.findings)
        Index((), {}, tuple(findings)).refuse_unless_sound(allow_incomplete=True)
        self._refuse_other_split(scans)
        sha256, md5 = reader.digests()
        lengths = self._buckets.make_durable()
        if staged._file() != self._state["file"]:
            raise SourceChangedError(f"{printable(staged.path)} changed while it was staged")
        files = tuple(staged_file(str(staged.folder / name), staged.path) for name in lengths)
        token = uuid.uuid4().hex
        index = Index(files, _joined(scans, files), tuple(findings))
        save_index(staged.folder, index, {"token": token})
        self._advance()
        self._write_state(
            complete=True,
            token=token,
            bytes=reader.size,
            sha256=sha256,
            md5=md5,
            head=_digest(self._stream.head),
            staged=sum(lengths.values()),
            durable={},
        )

    def _refuse_other_split(self, scans: list[tuple[Part, Scan]]) -> None:
        source = self._staged.source
        held = {split for _, scan in scans for split in scan.rows}
        if source.certain and not held.intersection(source.splits):
            what = f"images of the {', '.join(sorted(held))} split" if held else "no image at all"
            raise SourceError(
                f"{printable(self._staged.path)} was taken for the {', '.join(source.splits)} "
                f"split and holds {what}; give it with the option of its split"
            )


def _joined(scans: list[tuple[Part, Scan]], files: tuple[SourceFile, ...]) -> dict[str, Rows]:
    """Returns the rows of all scans by split; their `file` counts in `files`."""
    numbers = {file.path: number for number, file in enumerate(files)}
    columns: dict[str, list[Rows]] = {}
    for _, scan in scans:
        places = np.array([numbers[file.path] for file in scan.files], np.int32)
        for split, rows in scan.rows.items():
            rows["file"] = places[rows["file"]]
            columns.setdefault(split, []).append(rows)
    return {split: np.concatenate(rows) for split, rows in columns.items()}


def _is_there(path: Path, length: int) -> bool:
    return path.is_file() and path.stat().st_size >= length


def is_kept(folder: Path) -> bool:
    """Returns whether a staging folder holds what a later run can go on with."""
    return any(folder.glob(f"*/{STATE}"))
