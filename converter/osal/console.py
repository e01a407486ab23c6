"""The shell that the command is typed in, and the streams that it got from it."""

from __future__ import annotations

import os
import shlex
import sys
import time

from converter.osal.system import WINDOWS


def quoted(argument: str) -> str:
    """Returns an argument as it is typed in this system's shell."""
    if not WINDOWS:
        return shlex.quote(argument)
    if not set(argument) & set(" &()^;,=%!'"):
        return argument
    backslashes = len(argument) - len(argument.rstrip("\\"))  # one before the quote would hide it
    return f'"{argument}{backslashes * chr(92)}"'


def set_time_command(path: str, mtime_ns: int) -> str:
    """Returns the command that gives a file a time of last change.

    Args:
        path: the file.
        mtime_ns: the time in nanoseconds since 1970.
    """
    if WINDOWS:  # PowerShell, from cmd, too; a file time counts 100 ns since 1601
        quoted_path = path.replace("'", "''")
        return (
            f"powershell -Command \"(Get-Item -LiteralPath '{quoted_path}').LastWriteTimeUtc = "
            f'[datetime]::FromFileTimeUtc({mtime_ns // 100 + 116_444_736_000_000_000})"'
        )
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(mtime_ns // 10**9))
    return f"touch -d {moment}.{mtime_ns % 10**9:09d}Z {quoted(path)}"


def open_closed_streams() -> None:
    """Gives the standard streams that were closed somewhere to go.

    Otherwise the next file that is opened, a shard, takes the number of one, and what a library
    prints goes into it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)  # workers need them, too
    os.close(fd)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
