"""Worker processes, which end with the command, and the signals that stop it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from converter.osal.system import WINDOWS

MOST_WORKERS: Final = 61 if WINDOWS else 1 << 20
"""Windows waits for 64 objects at once, of which joblib needs three for itself."""
_INTERRUPTS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGBREAK") if hasattr(signal, name)
)
_PARENT_CHECK_SECONDS = 0.2


def begin_worker(parent: int) -> None:
    """Prepares a worker process: Ctrl-C is its parent's business, and it dies with its parent.

    An interrupted worker would take the next task, and an orphan would go on with those queued.

    Args:
        parent: process id of the command.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)

    def watch() -> None:
        while True:
            exit_if_orphaned(parent)
            time.sleep(_PARENT_CHECK_SECONDS)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def exit_if_orphaned(parent: int) -> None:
    """Ends this process at once where the command that hands out the tasks is gone.

    Args:
        parent: process id of the command.
    """
    if not _parent_lives(parent):
        os._exit(1)


def _parent_lives(pid: int) -> bool:
    if pid == os.getpid():
        return True
    if WINDOWS:  # there a dead parent's id is still reported by getppid
        return _windows_process_lives(pid)
    return os.getppid() == pid


def _windows_process_lives(pid: int) -> bool:
    handle = _windows_process(pid)
    timed_out = 0x102
    return bool(handle) and _kernel().WaitForSingleObject(handle, 0) == timed_out


@functools.cache
def _windows_process(pid: int) -> Any:
    """Returns a handle, kept open so that no other process gets the id; 0 where there is none."""
    synchronize = 0x00100000
    return _kernel().OpenProcess(synchronize, False, pid)


@functools.cache
def _kernel() -> Any:
    import ctypes

    kernel = getattr(ctypes, "WinDLL")("kernel32")  # noqa: B009 - absent from other systems' stubs
    kernel.OpenProcess.restype = ctypes.c_void_p
    kernel.WaitForSingleObject.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    return kernel


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Holds Ctrl-C back while processes are started, which inherit that they do not see it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_signals() -> None:
    """Lets the final renames finish, within `stop_signals_raise`."""
    if threading.current_thread() is threading.main_thread():
        for number in (*_INTERRUPTS, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


class _StopHandler:
    """Raises at the first signal; those that follow are ignored, so that cleaning up can end."""

    def __init__(self, kinds: dict[signal.Signals, type[BaseException]]) -> None:
        self._kinds = kinds
        self.called = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.called = True
        for kind in self._kinds:
            signal.signal(kind, signal.SIG_IGN)
        raise self._kinds[signal.Signals(number)](
            "interrupted. Run the same command again to continue."
        )


@contextlib.contextmanager
def stop_signals_raise(
    on_interrupt: type[BaseException], on_terminate: type[BaseException]
) -> Iterator[None]:
    """Turns the first SIGINT (Ctrl-Break, too) or SIGTERM into an exception while the block runs.

    Those that follow are ignored, until the end of the outermost such block. Outside of the main
    thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = {**dict.fromkeys(_INTERRUPTS, on_interrupt), signal.SIGTERM: on_terminate}
    handler = _StopHandler(kinds)
    before = {number: signal.signal(number, handler) for number in kinds}
    try:
        yield
    finally:
        for number, usual in before.items():
            if not (handler.called and isinstance(usual, _StopHandler)):
                signal.signal(number, usual)
