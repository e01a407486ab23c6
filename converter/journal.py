"""What is done: the saved index, the journal of finished shards, the lock."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import socket
import time
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import filelock
import numpy as np

from converter import osal
from converter.errors import LockedError, ResumeError, printable
from converter.findings import Finding
from converter.identity import Identity, difference
from converter.index import Index
from converter.output import output_errors, write_durably
from converter.shards import ImageNote, ShardResult
from converter.sources.base import SourceFile
from converter.sources.reading import is_current

JOURNAL: Final = "journal.jsonl"
SAVED_INDEX: Final = "index.npz"


class Journal:
    """The lines written so far in one work folder: runs, finished shards, interruptions.

    A line that was torn by a crash or altered is dropped. Every line is on the disk when `add`
    returns.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.shards: dict[str, ShardResult] = {}
        self.unchecked: set[str] = set()
        self.runs: list[dict[str, Any]] = []
        self.identity: Identity | None = None
        for line in self._lines():
            self._take(line)

    def _lines(self) -> Iterable[dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().split(b"\n"):
            entry = read_line(line)
            if entry is not None:
                yield entry

    def _take(self, entry: dict[str, Any]) -> None:
        if shard := entry.get("shard"):
            try:
                result = _shard_result(shard)
            except TypeError:  # of another version of this package
                return
            self.shards[result.name] = result
            self.unchecked.add(result.name)
        elif run := entry.get("run"):
            self.runs.append(run)
        elif stop := entry.get("stop"):
            if self.runs:
                self.runs[-1].update(stop)
            self.unchecked.clear()
        elif identity := entry.get("identity"):
            self.identity = identity

    def add(self, kind: str, value: Any) -> None:
        """Appends a line and waits until it is on the disk.

        Args:
            kind: identity, run, shard or stop.
            value: a dictionary, or a `ShardResult`.

        Raises:
            OutputError: it cannot be written.
        """
        plain = dataclasses.asdict(value) if isinstance(value, ShardResult) else value
        line = written_line({kind: plain})
        new = not self.path.exists()
        with output_errors(self.path):
            with open(self.path, "ab") as file:
                file.write(b"\n" + line + b"\n" if self._torn() else line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if new:
                osal.fsync_folder(self.path.parent)
        self._take({kind: plain})

    def _torn(self) -> bool:
        if not self.path.exists() or not (size := self.path.stat().st_size):
            return False
        with open(self.path, "rb") as file:
            file.seek(size - 1)
            return file.read(1) != b"\n"

    def continues_restart(self, identity: Identity) -> bool:
        """Returns whether this is the unfinished work of the same conversion with --restart."""
        return self.identity in (None, {**identity, "restart": True})

    def require_identity(
        self, identity: Identity, files: Sequence[SourceFile], restart: bool
    ) -> None:
        """Checks that the work folder belongs to this conversion, or claims it when it is new.

        Args:
            identity: that of this conversion.
            files: its archives.
            restart: whether it was asked to start anew.

        Raises:
            ResumeError: names what differs.
        """
        if self.identity is None:
            self.add("identity", {**identity, "restart": restart})
        else:
            self.refuse_another(identity, files)

    def refuse_another(self, identity: Identity, files: Sequence[SourceFile]) -> None:
        """Checks that the work folder does not belong to another conversion.

        Raises:
            ResumeError: names what differs.
        """
        if self.identity is not None and (other := difference(self.identity, identity, files)):
            raise ResumeError(
                f"the unfinished work in {printable(str(self.path.parent))} was begun with "
                f"{other}, or discard that work and start anew with --restart."
            )


def written_line(entry: dict[str, Any]) -> bytes:
    """Returns a line of the journal: the CRC-32 of the JSON text, and the text."""
    text = json.dumps(entry, ensure_ascii=True).encode()
    return b"%08x %s" % (zlib.crc32(text), text)


def read_line(line: bytes) -> dict[str, Any] | None:
    """Returns what a line of the journal says, None where it is not as it was written."""
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        return None
    entry = json.loads(text)
    return entry if isinstance(entry, dict) else None


def _shard_result(plain: dict[str, Any]) -> ShardResult:
    notes = {
        field: tuple(ImageNote(**note) for note in plain.get(field, ()))
        for field in ("corrupt", "unusual")
    }
    return ShardResult(**{**plain, **notes})


def save_index(folder: Path, index: Index, request: dict[str, Any]) -> None:
    """Saves the index durably, with what it was asked for.

    Raises:
        OutputError: it cannot be written.
    """
    about = {
        "request": request,
        "files": [dataclasses.asdict(file) for file in index.files],
        "findings": [dataclasses.asdict(finding) for finding in index.findings],
    }
    buffer = io.BytesIO()
    np.savez(buffer, about=np.array(json.dumps(about)), **index.splits)  # type: ignore[arg-type]
    write_durably(folder / SAVED_INDEX, buffer.getvalue())


def load_index(folder: Path, request: dict[str, Any]) -> Index | None:
    """Returns the saved index where it was made for the same request and unchanged files.

    With folders it is always made anew: only a look at every file tells whether one has changed.
    """
    path = folder / SAVED_INDEX
    try:
        with np.load(path, allow_pickle=False) as saved:
            about = json.loads(str(saved["about"]))
            splits = {name: saved[name] for name in saved.files if name != "about"}
        files = tuple(SourceFile(**file) for file in about["files"])
        findings = tuple(
            Finding(found["kind"], found["count"], tuple(found["places"]))
            for found in about["findings"]
        )
        unchanged = all(is_current(file) for file in files)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    return Index(files, splits, findings) if unchanged and about["request"] == request else None


def lock_holder(path: Path) -> str | None:
    """Returns who holds the lock of an output now, None where nobody does; leaves no trace."""
    if not path.exists():
        return None
    try:
        with filelock.FileLock(path, timeout=0):
            return None
    except filelock.Timeout:
        return _holder(path)
    except OSError:  # not ours to open, so not ours to judge
        return None


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _holder(path: Path) -> str:
    try:
        note = json.loads(_note_of(path).read_text(encoding="ascii"))
        return printable(f"process {note['pid']} on {note['host']}, since {note['since']}")
    except (OSError, ValueError, KeyError, TypeError):
        return f"it holds {printable(str(path))}"


class OutputLock:
    """Held by the one run that may write to an output; the system frees it when a run dies.

    It relies on the operating system's file locks (flock on Linux and macOS, which NFS carries
    to its server; LockFile on Windows). A note beside it says who holds it.

    Args:
        path: the lock file.

    Raises:
        LockedError: another run holds it; says which.
        OutputError: the lock file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._lock = filelock.FileLock(path, timeout=0)
        self._note = _note_of(path)
        with output_errors(path):
            try:
                self._lock.acquire()
            except filelock.Timeout as error:
                raise LockedError(
                    f"another run works on this output: {_holder(path)}. Wait until it ends, or "
                    "stop that process, and run this again."
                ) from error
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        with output_errors(self._note):
            self._note.write_text(json.dumps(holder), encoding="ascii")

    def __enter__(self) -> OutputLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for path in (self._note, Path(self._lock.lock_file)):
            try:
                path.unlink()
            except OSError:  # Windows does not remove a locked file; the next run reuses it
                continue
        self._lock.release()


def run_entry(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the journal's line for a run that begins now."""
    return {"started": _now(), "pid": os.getpid(), "host": socket.gethostname(), **options}


def stop_entry(how: str) -> dict[str, Any]:
    """Returns the journal's line for a run that ends in order."""
    return {"ended": _now(), "how": how}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
