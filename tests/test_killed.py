"""Whatever ends a conversion or its workers, the same call goes on, and the result is the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from converter import pool
from converter.demo import make_archives
from converter.errors import LockedError
from converter.workspace import Workspace
from tests.disturbed import DRIVER, SIZE, assert_goes_on, run, start, sums, wait_for_shards
from tests.system import KILLED, fewer_on_windows, not_on_windows

CHECKOUT = Path(__file__).parents[1]
KILL_AT = """
import os, signal
from converter import osal
count = 0
def counted(real):
    def call(*args, **options):
        global count
        count += 1
        if count == {number}:
            os.kill(os.getpid(), 9)
        return real(*args, **options)
    return call
os.fsync, osal.replace = counted(os.fsync), counted(osal.replace)
osal.fsync_folder = counted(osal.fsync_folder)
import converter.pool
if {inline}:
    converter.pool.run = lambda run, tasks, workers: map(run, tasks)
    converter.pool.start = lambda get_ready, workers: None
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


@pytest.fixture(scope="module")
def undisturbed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("undisturbed")
    run(archives, out)
    return sums(out)


@pytest.mark.parametrize("seed", fewer_on_windows(*range(6), keep=2))
def test_killed_at_a_random_moment(
    archives: Path, tmp_path: Path, undisturbed: str, seed: int
) -> None:
    rng = random.Random(seed)
    process = start(archives, tmp_path)
    wait_for_shards(tmp_path, rng.randrange(20))
    time.sleep(rng.random() * 0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    if seed % 2 and hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate(timeout=120)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    assert_goes_on(archives, tmp_path, undisturbed)


def test_orphans_publish_nothing(archives: Path, tmp_path: Path) -> None:
    process = start(archives, tmp_path)
    wait_for_shards(tmp_path, 5)
    process.kill()
    process.communicate(timeout=120)
    time.sleep(0.2)
    work = Workspace(tmp_path, "5.1.0").dataset
    before = sorted(path.name for path in work.glob("*-of-?????"))
    time.sleep(1)
    assert sorted(path.name for path in work.glob("*-of-?????")) == before


def kills(archives: Path, out: Path, number: int, inline: bool) -> bool:
    """Kills a conversion at its Nth durable operation; returns whether it had so many."""
    process = start(archives, out, KILL_AT.format(number=number, inline=inline), workers=1)
    process.communicate(timeout=60)
    assert process.returncode in (0, KILLED)
    return process.returncode != 0


@pytest.mark.parametrize("number", fewer_on_windows(1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 60, keep=3))
def test_killed_at_a_named_step(
    archives: Path, tmp_path: Path, undisturbed: str, number: int
) -> None:
    assert kills(archives, tmp_path, number, inline=True)
    assert_goes_on(archives, tmp_path, undisturbed)


@pytest.fixture(scope="module")
def durable_operations(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many an undisturbed conversion has."""
    folder = tmp_path_factory.mktemp("durable-operations")
    steps = folder / "steps"
    count = (
        KILL_AT.format(number=-1, inline=True)
        + f"import atexit; atexit.register(lambda: open({str(steps)!r}, 'w').write(str(count)))"
    )
    start(archives, folder / "counted", count, workers=1).communicate(timeout=60)
    return int(steps.read_text(encoding="ascii"))


@not_on_windows("thirty starts of Python take too long; some steps are tested above")
def test_killed_at_each_of_the_last_steps(
    archives: Path, tmp_path: Path, undisturbed: str, durable_operations: int
) -> None:
    """From the last shard over metadata and checksums to the final rename and the clean-up."""
    for number in range(durable_operations - 16, durable_operations + 1):
        out = tmp_path / str(number)
        assert kills(archives, out, number, inline=True), number
        assert_goes_on(archives, out, undisturbed)


@pytest.mark.parametrize("before_the_end", fewer_on_windows(9, 6, 4, 2, keep=2))
def test_interrupted_while_it_publishes(
    archives: Path, tmp_path: Path, undisturbed: str, durable_operations: int, before_the_end: int
) -> None:
    number = durable_operations - before_the_end
    fault = KILL_AT.format(number=number, inline=True)
    fault = fault.replace("os.kill(os.getpid(), 9)", "signal.raise_signal(2)")
    process = start(archives, tmp_path / "out", fault, workers=1)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (0, 130), said
    assert process.returncode == 130 or (tmp_path / "out" / "imagenet2012" / "5.1.0").exists()
    assert "Traceback" not in said
    assert_goes_on(archives, tmp_path / "out", undisturbed)


@not_on_windows("a console is needed, see tests/windows")
@pytest.mark.parametrize("presses", [1, 3, 9])
def test_interrupted_from_the_terminal(
    archives: Path, tmp_path: Path, undisturbed: str, presses: int
) -> None:
    process = start(archives, tmp_path)
    wait_for_shards(tmp_path, 4)
    workers = psutil.Process(process.pid).children(recursive=True)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "Run the same command again to continue" in said
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    assert_goes_on(archives, tmp_path, undisturbed)


def test_two_at_once(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    process = start(archives, tmp_path)
    wait_for_shards(tmp_path, 1)
    with pytest.raises(LockedError, match=rf"process {process.pid} on .*, since 20"):
        run(archives, tmp_path)
    process.kill()
    process.communicate(timeout=120)
    assert_goes_on(archives, tmp_path, undisturbed)


def test_a_worker_killed_from_outside_costs_nothing(
    archives: Path, tmp_path: Path, undisturbed: str
) -> None:
    process = start(archives, tmp_path)
    wait_for_shards(tmp_path, 4)
    worker = psutil.Process(process.pid).children()[-1]
    worker.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert sums(tmp_path) == undisturbed


def test_a_task_never_chooses_the_exit_code(tmp_path: Path) -> None:
    with pytest.raises(pool.WorkerDied, match="code 3"):
        list(pool.run(sys.exit, [3], 1))
    pool.shut_down()


def run_with_workers_that(
    archives: Path, folder: Path, fault: str, timeout: float
) -> tuple[int, str]:
    """Converts with workers that run some indented lines first; returns exit code and stderr."""
    (folder / "sitecustomize.py").write_text(
        f"import os, sys\nif any('loky' in word for word in sys.orig_argv):\n{fault}",
        encoding="ascii",
    )
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(archives), str(folder / "out"), "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(CHECKOUT)))},
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("death", fewer_on_windows("os._exit(1)", "os.abort()", keep=1))
def test_an_image_that_kills_its_decoder_is_found(
    archives: Path, tmp_path: Path, death: str
) -> None:
    victim = b"ILSVRC2012_val_00000017"
    data = (archives / "ILSVRC2012_img_val.tar").read_bytes()
    at = data.index(victim) + 512
    code, said = run_with_workers_that(
        archives,
        tmp_path,
        "    import converter.images as images\n"
        "    real = images.validate\n"
        "    def validate(data, level):\n"
        f"        if data[:200] == {data[at : at + 200]!r}:\n"
        f"            {death}\n"
        "        return real(data, level)\n"
        "    images.validate = validate\n",
        timeout=120,
    )
    assert code == 5, said
    assert "ILSVRC2012_val_00000017.JPEG" in said
    assert "the process that decodes it dies" in said
    assert "corrupt images: 1" in said


def test_a_worker_that_dies_behind_its_last_image_accuses_none(
    archives: Path, tmp_path: Path
) -> None:
    code, said = run_with_workers_that(
        archives,
        tmp_path,
        "    real, real_open, names = os.fsync, open, {}\n"
        "    def named(path, *how, **more):\n"
        "        file = real_open(path, *how, **more)\n"
        "        names[file.fileno()] = str(path)\n"
        "        return file\n"
        "    def fsync(fd):\n"
        "        if 'validation' in names.get(fd, ''):\n"
        "            os._exit(1)\n"
        "        real(fd)\n"
        "    import builtins\n"
        "    os.fsync, builtins.open = fsync, named\n",
        timeout=200,
    )
    assert code == 1, said
    assert "die before they convert an image" in said
    assert "corrupt" not in said
