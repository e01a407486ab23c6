"""What a disk would hold after the power failed: a model over the real calls of one process.

The content of a file survives as it was at its last fsync. The entries of a folder survive at
worst as they were at the folder's last fsync, at best as they are now (a file system may write
them back on its own); anything in between is possible, the two ends are what is tested. After
LevelDB's FaultInjectionTestEnv.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any

Entries = dict[str, tuple[int, bool]]
"""Inode number, and whether it is a folder, by name."""


class PowerLoss(BaseException):
    """The moment of the failure; no handler of errors sees it."""


class Disk:
    """Watches all durable operations below a folder, and fails at one of them.

    Args:
        root: the folder, existing; its content so far counts as durable.
        fails_at: the operation before which the power fails, None for never.
    """

    def __init__(self, root: Path, fails_at: int | None = None) -> None:
        self._root = os.path.realpath(root)
        self._fails_at = fails_at
        self._content: dict[int, bytes] = {}
        self._entries: dict[int, Entries] = {}
        self._now: dict[int, Entries] = {}
        self._pinned: list[int] = []
        self._real = os.fsync, os.replace
        self._failed = False
        self.operations: list[str] = []
        for folder, _, names in os.walk(self._root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                self._keep(os.open(path, os.O_RDONLY))

    def _keep(self, fd: int) -> None:
        """Notes a file or folder; it stays open so that its inode number is not used again."""
        self._pinned.append(fd)
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            self._entries[status.st_ino] = _entries(fd)
        else:
            self._content[status.st_ino] = os.pread(fd, status.st_size, 0)

    def _stop(self) -> None:
        """What happens from now on, such as the handling of the exception, never was."""
        self._failed = True
        for folder, _, _ in os.walk(self._root):
            self._now[os.stat(folder).st_ino] = _entries(folder)

    def _operation(self, name: str) -> None:
        if self._failed:
            return
        self.operations.append(name)
        if self._fails_at is not None and len(self.operations) >= self._fails_at:
            self._stop()
            raise PowerLoss(name)

    def _fsync(self, fd: int) -> None:
        path = f"/proc/self/fd/{fd}"
        self._operation(f"fsync {os.path.relpath(os.readlink(path), self._root)}")
        if not self._failed:
            self._keep(os.open(path, os.O_RDONLY))

    def _replace(self, source: Any, target: Any, **options: Any) -> None:
        self._operation(f"replace {os.path.relpath(target, self._root)}")
        self._real[1](source, target, **options)

    def __enter__(self) -> Disk:
        os.fsync, os.replace = self._fsync, self._replace  # type: ignore[assignment]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.fsync, os.replace = self._real
        if not self._failed:
            self._stop()

    def restart(self, into: Path, entries_written_back: bool) -> None:
        """Makes what is found after the power is back; the model ends with it.

        Args:
            into: a folder to make it in.
            entries_written_back: whether folders come back as they were at the failure, not as
                they were at their last fsync.
        """
        entries = {**self._entries, **(self._now if entries_written_back else {})}
        for parent, now in self._now.items():  # a renamed folder is in one place, not in two
            for name, child in now.items():
                if child[1] and entries.get(parent, {}).get(name) == child:
                    entries = {
                        folder: {n: e for n, e in held.items() if e != child or folder == parent}
                        for folder, held in entries.items()
                    }
        self._make(os.stat(self._root).st_ino, entries, into)
        while self._pinned:
            os.close(self._pinned.pop())

    def _make(self, folder: int, entries: dict[int, Entries], into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        for name, (inode, is_folder) in entries.get(folder, {}).items():
            if is_folder:
                self._make(inode, entries, into / name)
            else:
                (into / name).write_bytes(self._content.get(inode, b""))


def _entries(folder: str | int) -> Entries:
    with os.scandir(folder) as found:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in found}
