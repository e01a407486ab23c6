"""A small conversion that tests disturb: in a process of its own, with faults put into it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from converter import convert
from converter.demo import DemoSize
from converter.errors import OutputError
from converter.plan import ShardLimits
from converter.report import Report
from converter.workspace import Workspace
from tests.system import WINDOWS

SIZE = DemoSize(
    images_per_class=3, validation=40, test=8, classes=24, width=32, height=24, mean_bytes=1000
)
LIMITS = ShardLimits(min_bytes=3000, max_bytes=6000)
DRIVER = """
import os, sys
from converter import convert, ConversionError
from converter.errors import Interrupted, Terminated
from converter.osal import stop_signals_raise
from converter.plan import ShardLimits
exec(os.environ.get("FAULT", ""))
with stop_signals_raise(Interrupted, Terminated):
    try:
        convert(sys.argv[1], sys.argv[2], workers=int(sys.argv[3]), allow_incomplete=True,
                shard_limits=ShardLimits(3000, 6000))
    except (ConversionError, Interrupted) as error:
        print(error, file=sys.stderr)
        os._exit(error.exit_code)
"""


def run(archives: Path, out: Path, **options: object) -> Report:
    settings = {"workers": 2, "allow_incomplete": True, "shard_limits": LIMITS, **options}
    return convert(archives, out, **settings)  # type: ignore[arg-type]


def sums(out: Path) -> str:
    return (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_text(encoding="ascii")


def start(archives: Path, out: Path, fault: str = "", workers: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(archives), str(out), str(workers)],
        env={**os.environ, "FAULT": fault},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_shards(out: Path, count: int) -> None:
    work = Workspace(out, "5.1.0").dataset
    for _ in range(6000):
        if work.is_dir() and sum(".tmp" not in path.name for path in work.iterdir()) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no shards appear")


def assert_goes_on(archives: Path, out: Path, undisturbed: str) -> None:
    """After a fault: nothing half-done is visible, and the same call ends in the same bytes."""
    final = out / "imagenet2012" / "5.1.0"
    if not final.exists():
        run(archives, out)
    assert sums(out) == undisturbed
    names = {line.split()[1] for line in undisturbed.splitlines()}
    assert {path.name for path in final.iterdir()} == {
        *names,
        "SHA256SUMS",
        "conversion_report.json",
    }
    if not WINDOWS:  # where it takes seconds
        with pytest.raises(OutputError, match="exists already"):
            run(archives, out)
    assert [path.name for path in final.parent.iterdir() if path.is_dir()] == ["5.1.0"]
