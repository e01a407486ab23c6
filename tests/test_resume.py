"""Whatever stops a conversion, the same command goes on, and the result is the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from converter import convert, pool
from converter.demo import DemoSize, make_archives
from converter.errors import (
    CorruptImagesError,
    LockedError,
    OutputError,
    ResumeError,
    SourceReadError,
)
from converter.journal import read_line, written_line
from converter.plan import ShardLimits
from converter.report import Report
from converter.workspace import Workspace
from tests.system import KILLED, WINDOWS, fewer_on_windows, not_on_windows

CHECKOUT = Path(__file__).parents[1]
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
"""
STOP_AT = """
import signal
from converter.journal import Journal
real = Journal.add
def add(journal, kind, value):
    real(journal, kind, value)
    if kind == "shard" and len(journal.shards) == 6:
        signal.raise_signal(signal.SIGTERM)
Journal.add = add
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


@pytest.fixture(scope="module")
def stopped(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output whose conversion was stopped by SIGTERM when some shards were written."""
    out = tmp_path_factory.mktemp("stopped")
    process = start(archives, out, STOP_AT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "Run the same command again to continue" in said
    return out


@pytest.fixture
def interrupted(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_finished_shards_are_kept(archives: Path, interrupted: Path, undisturbed: str) -> None:
    report = run(archives, interrupted, workers=1)
    assert report.reused_images > 0
    assert report.images + report.reused_images == sum(s.images for s in report.splits.values())
    assert [entry["how"] for entry in report.runs] == ["interrupted", "published"]
    assert sums(interrupted) == undisturbed


def test_torn_lines_and_damaged_shards_are_done_again(
    archives: Path, interrupted: Path, undisturbed: str
) -> None:
    space = Workspace(interrupted, "5.1.0")
    shard = sorted(space.dataset.iterdir())[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    (space.dataset / "stray").write_bytes(b"x")
    with open(space.work / "journal.jsonl", "ab") as file:
        file.write(b'junk\n{"shard": {"name": "imagenet2012-tr')
    run(archives, interrupted, verify_resume=True)
    assert sums(interrupted) == undisturbed


def rewrite_journal(
    out: Path, change: Callable[[dict[str, Any]], dict[str, Any]], resealed: bool = True
) -> None:
    path = Workspace(out, "5.1.0").work / "journal.jsonl"
    lines = []
    for line in path.read_bytes().splitlines():
        entry = read_line(line)
        assert entry is not None
        if "shard" in entry:
            entry = {"shard": change(entry["shard"])}
        crc = written_line(entry)[:8] if resealed else line[:8]
        lines.append(crc + written_line(entry)[8:] + b"\n")
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("change", "resealed"),
    [
        ({"sha256": "0" * 64}, False),
        ({"num_bytes": 1}, False),
        ({"records": "many"}, False),
        ({"unknown field of a later version": 1}, True),
    ],
)
def test_an_altered_journal_is_not_believed(
    archives: Path, interrupted: Path, undisturbed: str, change: dict[str, Any], resealed: bool
) -> None:
    rewrite_journal(interrupted, lambda shard: shard | change, resealed)
    assert run(archives, interrupted).reused_images == 0
    assert sums(interrupted) == undisturbed


def test_a_stricter_validation_checks_what_was_not_checked(
    archives: Path, interrupted: Path
) -> None:
    rewrite_journal(interrupted, lambda shard: shard | {"validate": "off"})
    assert run(archives, interrupted).reused_images == 0


def test_another_source_or_version_is_named(
    archives: Path, interrupted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    make_archives(other, DemoSize(**{**SIZE.__dict__, "seed": 1}))
    with pytest.raises(ResumeError, match=r"(?s)another source:.*--restart"):
        run(other, interrupted)
    with pytest.raises(ResumeError, match="another shard limits"):
        run(archives, interrupted, shard_limits=ShardLimits(5000, 9000))
    report = run(other, interrupted, restart=True)
    assert report.reused_images == 0


def test_corrupt_images_cost_only_their_shards(archives: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    tar = source / "ILSVRC2012_img_val.tar"
    data = tar.read_bytes()
    at = data.index(b"ILSVRC2012_val_00000005") + 512
    tar.write_bytes(data[:at] + b"JUNK" * 20 + data[at + 80 :])
    with pytest.raises(CorruptImagesError, match="ILSVRC2012_val_00000005"):
        run(source, tmp_path)
    report = run(source, tmp_path, on_corrupt="skip")
    assert [image.file_name for image in report.corrupt] == ["ILSVRC2012_val_00000005.JPEG"]
    assert 0 < report.images < 20
    assert report.reused_images > 80


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("pread64", "EIO", 3),
        ("write", "ENOSPC", 4),
        ("fsync", "EIO", 4),
        ("fsync", "ENOSPC", 4),
        ("rename", "EACCES", 4),
        ("write", "EINTR", 0),
    ],
)
def test_a_system_call_that_fails_in_a_worker(
    archives: Path, tmp_path: Path, undisturbed: str, call: str, error: str, code: int
) -> None:
    if not shutil.which("strace"):
        pytest.skip("there is no strace")
    times = "3+" if code else "3+2"
    inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(archives), "-e",
              f"inject={call}:error={error}:when={times}"]  # fmt: skip
    paths = [str(archives / name) for name in os.listdir(archives)]
    work = Workspace(tmp_path, "5.1.0").dataset
    paths += [str(work / f"{name}.tmp") for name in shard_names(undisturbed)]
    for path in paths:
        inject[5:5] = ["-P", path]
    process = subprocess.Popen(
        [*inject, sys.executable, "-c", DRIVER, str(archives), str(tmp_path), "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, said = process.communicate(timeout=200)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert_goes_on(archives, tmp_path, undisturbed)


def shard_names(sums: str) -> list[str]:
    return [line.split()[1] for line in sums.splitlines() if "tfrecord" in line]


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


@not_on_windows("an open file cannot be removed")
def test_a_source_that_vanishes(archives: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    process = start(source, tmp_path)
    wait_for_shards(tmp_path, 4)
    (source / "ILSVRC2012_img_train.tar").unlink()
    (source / "ILSVRC2012_img_val.tar").unlink()
    (source / "ILSVRC2012_img_test.tar").unlink()
    _, said = process.communicate(timeout=60)
    assert process.returncode == SourceReadError.exit_code
    assert "was indexed and is now gone" in said


@not_on_windows("there is no limit on the size of a file")
def test_no_file_larger_than_the_limit(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    fault = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    process = start(archives, tmp_path, fault)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "the file size limit is exceeded" in said
    assert_goes_on(archives, tmp_path, undisturbed)


@not_on_windows("a test cannot mount a small disk")
def test_a_full_disk(archives: Path, tmp_path: Path, undisturbed: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        fault = "import shutil; u = shutil.disk_usage('/'); shutil.disk_usage = lambda _: u"
        process = start(archives, disk, fault)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 4, said
        assert f"no space on {disk}" in said
        grow = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(grow, check=True)
        assert_goes_on(archives, disk, undisturbed)
        report = json.loads(
            (disk / "imagenet2012/5.1.0/conversion_report.json").read_text(encoding="ascii")
        )
        assert "no space" in report["runs"][0].get("how", "no space")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@not_on_windows("a test cannot mount a read-only disk")
def test_a_read_only_output(archives: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(OutputError, match="is mounted read-only"):
            run(archives, disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
