"""What is read once gives the same shards as what is read in place, and nothing is lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from converter import (
    buckets,
    checksum,
    convert,
    io_choice,
    odd_images,
    osal,
    proof,
    staged_source,
    staging,
)
from converter.cli import app
from converter.demo import DemoSize, make_archives
from converter.errors import (
    CorruptImagesError,
    Interrupted,
    NoSpaceError,
    ResumeError,
    SourceChangedError,
    SourceError,
    StagedFilesGoneError,
    UsageError,
)
from converter.imagenet import OfficialArchive, label_of_wnid
from converter.index import Index
from converter.plan import ShardLimits
from converter.progress import Progress
from converter.report import Report
from converter.scan import ROW
from converter.sources.base import STAGED, SourceFile
from converter.workspace import Workspace
from tests.tarmaker import BLOCK, flip, header_of, nested, tar
from tests.test_stream import PACK
from tests.world import (
    CLASSES,
    INCOMPLETE,
    TEST,
    TRAIN,
    VAL,
    World,
    in_class_folders,
    in_this_process,
    jpeg,
    kaggle,
    stay_in_this_process,
    world,
)

__all__ = ["in_this_process", "world"]  # fixtures

SIZE = DemoSize(
    images_per_class=4, validation=60, test=9, classes=12, width=32, height=24, mean_bytes=1000
)
LIMITS = ShardLimits(min_bytes=3000, max_bytes=6000)
APPEND = osal.append
NAMES = {"train": "train", "validation": "val", "test": "test"}


class Said(Progress):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    make_archives(folder, SIZE)
    return folder


@pytest.fixture(scope="module")
def direct(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("direct")
    with pytest.MonkeyPatch.context() as patch:
        stay_in_this_process(patch)
        run(out, archives, io="direct")
    return sums(out)


def run(out: Path, source: Path | Sequence[Path] | None = None, **options: object) -> Report:
    settings = {"workers": 1, "allow_incomplete": True, "shard_limits": LIMITS, **options}
    return convert(source, out, **settings)  # type: ignore[arg-type]


def sums(out: Path) -> str:
    return (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_text(encoding="ascii")


def staged_files(out: Path) -> list[str]:
    return sorted(path.name for path in Workspace(out, "5.1.0").staging.glob("*/*.staged"))


def packed(archives: Path, folder: Path, kind: str) -> Path:
    folder.mkdir()
    for path in archives.glob("*.tar"):
        (folder / f"{path.name}.{kind}").write_bytes(PACK[kind](path.read_bytes()))
    return folder


class Pipe:
    """Gives standard input, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def __call__(self, data: bytes) -> None:
        read, write = os.pipe()
        threading.Thread(target=self._fill, args=(write, data), daemon=True).start()
        monkey = SimpleNamespace(fileno=lambda: read)
        self._patch.setattr(sys, "stdin", monkey)

    @staticmethod
    def _fill(number: int, data: bytes) -> None:
        try:
            with open(number, "wb") as file:
                file.write(data)
        except BrokenPipeError:
            pass


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    monkeypatch.setattr(os, "isatty", lambda number: False)
    return Pipe(monkeypatch)


def archive(archives: Path, split: str) -> Path:
    return archives / f"ILSVRC2012_img_{NAMES[split]}.tar"


def test_staged_tars_give_the_shards_of_direct_ones(
    archives: Path, tmp_path: Path, direct: str
) -> None:
    said = Said()
    report = run(tmp_path, archives, io="staged", progress=said)
    assert sums(tmp_path) == direct
    assert said.text.count("staged: read once from start to end (--io staged)") == 3
    assert [source["kind"] for source in report.sources[-3:]] == ["staged"] * 3
    assert len(report.checksums) == 3
    assert [path.name for path in (tmp_path / "imagenet2012").iterdir()] == ["5.1.0"]


@pytest.mark.parametrize("kind", PACK)
def test_compressed_tars(archives: Path, tmp_path: Path, direct: str, kind: str) -> None:
    source = packed(archives, tmp_path / "source", kind)
    said = Said()
    run(tmp_path / "out", source, progress=said)
    assert sums(tmp_path / "out") == direct
    assert said.text.count("it cannot be read at random") == 3
    with pytest.raises(UsageError, match="unpack it or save it to a file first"):
        run(tmp_path / "other", source, io="direct")


CAT = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"


@pytest.mark.parametrize("kind", ["gz", ""])
def test_a_real_pipe(archives: Path, tmp_path: Path, direct: str, kind: str) -> None:
    train = archive(archives, "train")
    if kind:
        train = packed(archives, tmp_path / "packed", kind) / f"{train.name}.{kind}"
    arguments = ["--train", "-", "--out", str(tmp_path), INCOMPLETE, "--workers", "2"]
    for split in ("validation", "test"):
        arguments += ["--source", str(archive(archives, split))]
    script = (
        "import sys, converter.plan as plan\n"
        "plan.ShardLimits.__init__.__defaults__ = (3000, 6000)\n"
        "from converter.cli import main; main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", CAT, str(train)], stdout=subprocess.PIPE) as cat:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            stdin=cat.stdout,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "standard input: staged: read once" in done.stderr
    assert sums(tmp_path) == direct


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_two_streams_and_the_test_split(archives: Path, tmp_path: Path, direct: str) -> None:
    named = {}
    for split in ("train", "validation", "test"):
        named[split] = tmp_path / split
        os.mkfifo(named[split])
        data = archive(archives, split).read_bytes()
        threading.Thread(target=named[split].write_bytes, args=(data,), daemon=True).start()
    run(tmp_path / "out", **named)
    assert sums(tmp_path / "out") == direct


def test_one_tar_with_all_splits(world: World, pipe: Pipe) -> None:
    world.put(test_v10102019=tar(TEST))
    assert world.run(INCOMPLETE)[0] == 0
    expected = world.sums
    shutil.rmtree(world.out)
    for name, data in (("all.tar", tar(kaggle())), ("all.tgz", PACK["gz"](tar(kaggle())))):
        (world.empty() / name).write_bytes(data)
        code, said = world.run(INCOMPLETE, "--io", "staged")
        assert (code, world.sums) == (0, expected), said
        shutil.rmtree(world.out)


@pytest.mark.parametrize(
    "train",
    [
        tar(in_class_folders(TRAIN), prefix="./", folders=True),
        tar(image for images in TRAIN.values() for image in images),
        nested(TRAIN, prefix="train/", extra=[("README.txt", b"read me"), ("._x.tar", b"junk")]),
    ],
    ids=["class-folders", "flat", "prefix"],
)
def test_tars_of_every_layout(world: World, train: bytes) -> None:
    world.put(train=train)
    assert world.run(INCOMPLETE, "--io", "staged")[0] == 0
    world.assert_right()


def refused(world: World, *options: str) -> str:
    code, said = world.run(INCOMPLETE, "--io", "staged", *options)
    assert code == 3, said
    assert not list(world.out.rglob("dataset_info.json"))
    return said.replace("\n", "")


def cut_inner() -> bytes:
    whole = tar(TRAIN[CLASSES[1]])
    broken = whole[: header_of(whole, TRAIN[CLASSES[1]][2][0]) + BLOCK + 10]
    return tar((f"{w}.tar", broken if w == CLASSES[1] else tar(TRAIN[w])) for w in CLASSES)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("train", nested(TRAIN)[: len(nested(TRAIN)) // 2], "damaged archive"),
        ("train", cut_inner(), f"!{CLASSES[1]}.tar"),
        ("val", flip(tar(VAL), header_of(tar(VAL), VAL[5][0]) + 20), "checksum is wrong at byte"),
        ("val", tar(VAL) + b"more", "but data follows"),
        ("train", nested({**TRAIN, "n99999999": TRAIN[CLASSES[0]]}), "this is not ILSVRC2012"),
        ("train", nested({CLASSES[0]: TRAIN[CLASSES[1]]}), "name and class folder or class tar"),
        ("val", tar([*VAL, ("photo", jpeg(1))]), "hold images under another name"),
    ],
)
def test_what_is_refused_in_place_is_refused_when_staged(
    world: World, name: str, data: bytes, said: str
) -> None:
    world.put(**{name: data})
    assert said in refused(world)


def test_cut_at_many_places_a_pipe_is_refused(archives: Path, tmp_path: Path, pipe: Pipe) -> None:
    data = archive(archives, "train").read_bytes()
    for length in [0, 100, 512, 700, *range(5000, len(data) - 12_000, len(data) // 12)]:
        pipe(data[:length])
        with pytest.raises(SourceError) as caught:
            run(tmp_path, train="-", splits=["train"])
        assert "standard input" in str(caught.value)
        assert not (tmp_path / "imagenet2012").exists()


def test_damaged_compressed_data(world: World) -> None:
    data = PACK["gz"](nested(TRAIN))
    for broken, said in (
        (data[: len(data) // 2], f"the gzip data is cut: it ends at byte {len(data) // 2}"),
        (flip(data, len(data) - 6), "incorrect data check"),
        (data + b"more", f"other data follows the gzip data at byte {len(data)}"),
    ):
        (world.empty() / "ILSVRC2012_img_train.tar.gz").write_bytes(broken)
        world.put(val=tar(VAL))
        assert said in refused(world)


def test_a_wrong_split_is_said(world: World, pipe: Pipe) -> None:
    pipe(tar(VAL))
    with pytest.raises(SourceError, match="for the train split and holds images of the validation"):
        run(world.out, train="-")
    with pytest.raises(SourceError, match="named for the train split and holds validation"):
        run(world.out, train=world.source / "ILSVRC2012_img_val.tar")
    pipe(tar([("readme", b"text")]))
    with pytest.raises(SourceError, match="holds no image at all"):
        run(world.out, train="-")
    with pytest.raises(UsageError, match="can be one split only"):
        run(world.out, train="-", validation="-")
    with pytest.raises(UsageError, match="io must be one of auto, direct, staged"):
        run(world.out, io="fast")
    assert not world.out.exists()


def test_an_image_twice(world: World) -> None:
    world.put(val=tar([*VAL, VAL[3]]))
    assert world.run(INCOMPLETE, "--io", "staged")[0] == 0
    world.assert_right()
    shutil.rmtree(world.out)
    data = tar([*VAL, (VAL[0][0], jpeg(99))])
    world.put(val=data)
    code, said = world.run(INCOMPLETE, "--io", "staged")
    assert code == 3
    for place in (BLOCK, data.rindex(jpeg(99)[:200])):  # the places in the archive, not the staging
        assert f"ILSVRC2012_img_val.tar at byte {place}" in said


def test_a_corrupt_image_is_named_in_its_archive(world: World) -> None:
    data = tar([*VAL[:5], (VAL[5][0], b"junk"), *VAL[6:]])
    world.put(val=data)
    code, said = world.run(INCOMPLETE, "--io", "staged")
    assert code == 5
    assert f"ILSVRC2012_img_val.tar at byte {header_of(data, VAL[5][0]) + BLOCK}" in said
    code, said = world.run(INCOMPLETE, "--io", "staged", "--on-corrupt", "skip")
    assert code == 0
    assert said.count("is staged already") == 2
    world.assert_right([*VAL[:5], *VAL[6:]])


def test_staged_files_are_freed_as_shards_complete(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    release = staging.Staging.release

    def watched(self: staging.Staging, result: object) -> None:
        release(self, result)  # type: ignore[arg-type]
        left.append(len(staged_files(tmp_path)))

    monkeypatch.setattr(staging.Staging, "release", watched)
    run(tmp_path, archives, io="staged")
    assert left[0] > 80
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def stopping(after: int, real: Callable[..., object]) -> Callable[..., object]:
    calls = 0

    def call(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Interrupted("interrupted")
        return real(*arguments)

    return call


def test_stopped_while_shards_are_written(
    archives: Path, tmp_path: Path, direct: str, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    train = archive(archives, "train").read_bytes()
    others = [archive(archives, split) for split in ("validation", "test")]
    with monkeypatch.context() as patch:
        patch.setattr(osal, "exit_if_orphaned", stopping(30, osal.exit_if_orphaned))
        pipe(train)
        with pytest.raises(Interrupted, match=r"of \d+ shards are done"):
            run(tmp_path, others, train="-")
    pipe(b"something else")
    with pytest.raises(ResumeError, match="standard input is not what was staged"):
        run(tmp_path, others, train="-")
    pipe(b"")
    report = run(tmp_path, others, train="-")
    assert report.reused_images > 10
    assert sums(tmp_path) == direct


def test_stopped_in_the_middle_of_a_pipe(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(buckets.Buckets, "add", stopping(9, buckets.Buckets.add))
        pipe(archive(archives, "train").read_bytes())
        with pytest.raises(Interrupted, match="with the pipe from its beginning"):
            run(tmp_path, train="-")
    assert not (tmp_path / "imagenet2012").exists()


@pytest.mark.parametrize("kind", ["", "gz"])
@pytest.mark.parametrize("after", [3, 25, 40])
def test_stopped_in_the_middle_of_a_file(
    archives: Path,
    tmp_path: Path,
    direct: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    after: int,
) -> None:
    source = packed(archives, tmp_path / "source", kind) if kind else archives
    out = tmp_path / "out"
    monkeypatch.setattr(staged_source, "_CHECKPOINT_BYTES", 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(buckets.Buckets, "add", stopping(after, buckets.Buckets.add))
        expected = "writes on from the last checkpoint" if after > 20 else "staged. Run the same"
        with pytest.raises(Interrupted, match=expected):
            run(out, source, io="staged")
    assert bool(list(out.rglob("*.staged"))) == (after > 20)
    written = Written()
    monkeypatch.setattr(osal, "append", written.append)
    run(out, source, io="staged")
    assert sums(out) == direct
    made = Written()
    monkeypatch.setattr(osal, "append", made.append)
    run(tmp_path / "other", source, io="staged")
    assert (written.bytes < made.bytes) == (after > 20)


class Written:
    """Counts the bytes that are appended to files."""

    def __init__(self) -> None:
        self.bytes = 0

    def append(self, path: Path, parts: list[bytes]) -> None:
        self.bytes += sum(map(len, parts))
        APPEND(path, parts)


class Crash(BaseException):
    """The power is gone."""


def crashing(number: int, real: Callable[[int], None]) -> Callable[[int], None]:
    left = iter(range(number - 1))

    def fsync(descriptor: int) -> None:
        if next(left, None) is None:
            raise Crash
        real(descriptor)

    return fsync


def test_killed_at_many_durable_steps(archives: Path, tmp_path: Path) -> None:
    """From the first checkpoint to the shards; what is unsure is cut off or done again."""
    source = archive(archives, "validation")
    run(tmp_path / "direct", source, io="direct", splits=["validation"])
    number, crashes, crashed = 0, 0, True
    while crashed:
        number, crashed = number + 1 + number // 3, False
        out = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", crashing(number, os.fsync))
            patch.setattr(staged_source, "_CHECKPOINT_BYTES", 10_000)
            try:
                run(out, source, io="staged", splits=["validation"])
            except Crash:
                crashed = True
                crashes += 1
        if crashed:
            run(out, source, io="staged", splits=["validation"])
        assert sums(out) == sums(tmp_path / "direct"), number
    assert crashes > 12


def test_a_changed_file_is_staged_anew(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    monkeypatch.setattr(staged_source, "_CHECKPOINT_BYTES", 10_000)
    with monkeypatch.context() as patch:
        patch.setattr(buckets.Buckets, "add", stopping(30, buckets.Buckets.add))
        with pytest.raises(Interrupted):
            run(tmp_path, source, io="staged")
    shutil.rmtree(source)
    make_archives(source, DemoSize(**{**SIZE.__dict__, "seed": 1}))
    run(tmp_path, source, io="staged")
    other = tmp_path / "other"
    run(other, source, io="direct")
    assert sums(tmp_path) == sums(other)


def test_a_file_that_changes_during_the_pass(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    real = buckets.Buckets.make_durable

    def touched(self: buckets.Buckets) -> dict[str, int]:
        os.utime(archive(source, "train"), ns=(1, 1))
        return real(self)

    monkeypatch.setattr(buckets.Buckets, "make_durable", touched)
    with pytest.raises(SourceChangedError, match="changed while it was staged"):
        run(tmp_path, archive(source, "train"), io="staged", splits=["train"])


def test_freed_files_that_are_needed_again_are_staged_anew(
    archives: Path, tmp_path: Path, direct: str, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(osal, "exit_if_orphaned", stopping(30, osal.exit_if_orphaned))
        with pytest.raises(Interrupted):
            run(tmp_path, archives, io="staged", validate="header")
    said = Said()
    report = run(tmp_path, archives, io="staged", progress=said)
    assert "the sources are staged anew" in said.text
    assert report.reused_images == 0
    assert sums(tmp_path) == direct


def test_a_damaged_staged_file_is_noticed(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(osal, "exit_if_orphaned", stopping(0, osal.exit_if_orphaned))
        with pytest.raises(Interrupted):
            run(tmp_path, archives, io="staged")
    for path in tmp_path.rglob("*.staged"):
        status = path.stat()
        path.write_bytes(flip(path.read_bytes(), 200))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SourceChangedError, match=r"is not as it was staged.*--restart"):
        run(tmp_path, archives, io="staged")


def test_another_way_of_reading_is_named(
    archives: Path, tmp_path: Path, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(osal, "exit_if_orphaned", stopping(30, osal.exit_if_orphaned))
        with pytest.raises(Interrupted):
            run(tmp_path, archives, io="staged")
    with pytest.raises(ResumeError, match="another"):
        run(tmp_path, archives, io="direct")
    said = Said()
    run(tmp_path, archives, progress=said)
    assert said.text.count("as the earlier run did") == 3
    assert sums(tmp_path) == direct


def test_restart_stages_anew_and_goes_on(
    archives: Path, tmp_path: Path, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for restart in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(osal, "exit_if_orphaned", stopping(30, osal.exit_if_orphaned))
            with pytest.raises(Interrupted):
                run(tmp_path, archives, io="staged", restart=restart)
    said = Said()
    report = run(tmp_path, archives, io="staged", restart=True, progress=said)
    assert said.text.count("is staged already") == 3
    assert report.reused_images > 0
    assert sums(tmp_path) == direct


def test_an_incomplete_pipe_need_not_be_given_again(
    archives: Path, tmp_path: Path, direct: str, pipe: Pipe
) -> None:
    others = [archive(archives, split) for split in ("validation", "test")]
    pipe(archive(archives, "train").read_bytes())
    with pytest.raises(SourceError, match="add --allow-incomplete"):
        run(tmp_path, others, train="-", allow_incomplete=False)
    pipe(b"")
    run(tmp_path, others, train="-")
    assert sums(tmp_path) == direct


def test_a_staging_folder_of_ones_own(archives: Path, tmp_path: Path, direct: str) -> None:
    chosen, out = tmp_path / "staging", tmp_path / "out"
    (chosen / "mine").mkdir(parents=True)
    run(out, archives, io="staged", staging=chosen)
    assert sums(out) == direct
    assert [path.name for path in chosen.iterdir()] == ["mine"]


def test_odd_images_outlive_their_staged_files(tmp_path: Path) -> None:
    name = "n01739381_1309.JPEG"
    file = SourceFile(str(tmp_path / "freed"), 9, 9, STAGED, "train.tar")
    rows = np.array([(label_of_wnid()["n01739381"], 1309, 0, 16, 300)], ROW)
    index = Index((file,), {"train": rows}, ())
    with pytest.raises(StagedFilesGoneError, match=name):
        odd_images.convert_odd_images(index, tmp_path, 1)
    (tmp_path / name).write_bytes(jpeg(11))
    converted = odd_images.convert_odd_images(index, tmp_path, 1)
    assert converted.splits["train"]["size"].tolist() == [len(jpeg(11))]
    assert converted.files[1].path == str(tmp_path / name)


class Disk(SimpleNamespace):
    """What `shutil.disk_usage` says."""


def test_room_is_checked_before_the_pass_and_before_the_shards(
    archives: Path, tmp_path: Path, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sum(path.stat().st_size for path in archives.glob("*.tar"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(free=sizes - 1))
    with pytest.raises(NoSpaceError, match=f"{sizes:,} bytes are needed .* another --staging"):
        run(tmp_path, archives, io="staged")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(free=sizes))
    with pytest.raises(NoSpaceError, match="bytes are needed"):  # 1 MiB is kept for metadata
        run(tmp_path, archives, io="staged")
    made = sum(path.stat().st_size for path in tmp_path.rglob("*.staged"))
    assert made > 0
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(free=(1 << 20) + made // 2))
    run(tmp_path, archives, io="staged")  # the staged files are freed as the shards are written
    assert sums(tmp_path) == direct


def fake_disk(sys_folder: Path, path: Path, rotational: str, name: str = "sda") -> None:
    """Makes a tree as /sys has it: a partition on LVM on a disk."""
    number = os.stat(path).st_dev
    devices = sys_folder / "devices"
    disk, mapped = devices / name, devices / "dm-0"
    (disk / "queue").mkdir(parents=True)
    (disk / "queue" / "rotational").write_text(rotational + "\n", encoding="ascii")
    (disk / f"{name}1").mkdir()
    (disk / f"{name}1" / "partition").write_text("1\n", encoding="ascii")
    (mapped / "slaves").mkdir(parents=True)
    (mapped / "slaves" / f"{name}1").symlink_to(disk / f"{name}1")
    links = sys_folder / "dev" / "block"
    links.mkdir(parents=True)
    (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(mapped)


@pytest.mark.skipif(not hasattr(os, "major"), reason="device numbers are Unix's")
@pytest.mark.parametrize(
    ("rotational", "name", "said"),
    [
        ("1", "sda", "staged: read once from start to end (its disk has spinning platters)"),
        ("0", "sda", "read in place (its disk has none)"),
        ("1", "vda", "read in place (measured: "),
    ],
)
def test_auto_asks_the_system_about_the_disk(
    archives: Path,
    tmp_path: Path,
    direct: str,
    monkeypatch: pytest.MonkeyPatch,
    rotational: str,
    name: str,
    said: str,
) -> None:
    fake_disk(tmp_path / "sys", archives, rotational, name)
    monkeypatch.setattr(osal.disks, "SYS", str(tmp_path / "sys"))
    monkeypatch.setattr(io_choice, "SMALL_BYTES", 1000)
    monkeypatch.setattr(io_choice, "probe", lambda reader: (100e6, 90e6))
    heard = Said()
    run(tmp_path / "out", archives, progress=heard)
    assert heard.text.count(said) == 3
    assert sums(tmp_path / "out") == direct


def test_a_probe_decides_where_nobody_tells(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(300 << 20)
    with osal.RandomReader(path) as reader:
        sequential, scattered = io_choice.probe(reader)
    assert sequential > 0
    assert scattered > 0
    monkeypatch.setattr(osal.disks, "SYS", str(tmp_path / "nothing"))
    monkeypatch.setattr(io_choice, "SMALL_BYTES", 1000)
    assert osal.rotational(path) is None
    for rates, staged in (((150e6, 12e6), True), ((500e6, 300e6), False)):
        monkeypatch.setattr(io_choice, "probe", lambda reader, rates=rates: rates)
        said = Said()
        run(tmp_path / str(staged), archives, dry_run=not staged, progress=said)
        if staged:
            assert "(measured: 150 MB/s in order, 12 MB/s at random)" in said.text


def test_small_sources_are_read_in_place(archives: Path, tmp_path: Path) -> None:
    said = Said()
    run(tmp_path, archives, progress=said)
    assert said.text.count("read in place (it is small)") == 3


def test_a_proof_uses_the_digest_of_the_pass(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(archives, "train")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    official = [OfficialArchive(path.name, "train", len(data), "", digest)]
    monkeypatch.setattr(checksum, "OFFICIAL_ARCHIVES", official)
    monkeypatch.setattr(proof, "OFFICIAL_ARCHIVES", official)
    said = Said()
    report = run(
        tmp_path, archives, io="staged", validate="digest", splits=["train"], progress=said
    )
    assert f"the official {path.name}, byte for byte" in said.text
    assert [entry.official for entry in report.checksums] == [path.name]
    assert "is decoded instead" not in said.text


def test_inspect_and_dry_run_lay_nothing_aside(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = packed(archives, tmp_path / "source", "gz")
    result = CliRunner().invoke(app, ["inspect", "--source", str(source), "--json"])
    found = json.loads(result.stdout)
    assert found["splits"]["train"]["images"] == 48
    report = run(tmp_path / "out", source, dry_run=True)
    assert report.splits["validation"].images == 60
    assert not (tmp_path / "out").exists()


def test_zstd_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(SourceError, match=r"pip install backports.zstd"):
        run(tmp_path / "out", tmp_path / "train.tar.zst")


def test_a_full_disk_while_a_pipe_is_staged(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipe: Pipe
) -> None:
    def full(path: Path, parts: list[bytes]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(osal, "append", full)
    pipe(archive(archives, "train").read_bytes())
    with pytest.raises(NoSpaceError, match="no space on"):
        run(tmp_path, train="-")
    assert not (tmp_path / "imagenet2012").exists()


def test_corrupt_images_keep_their_staged_files(archives: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(archives, source)
    path = archive(source, "validation")
    data = path.read_bytes()
    at = data.index(b"ILSVRC2012_val_00000005") + 512
    path.write_bytes(data[:at] + b"JUNK" * 20 + data[at + 80 :])
    with pytest.raises(CorruptImagesError, match=rf"val\.tar at byte {at}"):
        run(tmp_path, source, io="staged")
    assert staged_files(tmp_path)
    path.unlink()  # from here on only what was staged is read
    path.write_bytes(b"")
    report = run(tmp_path, archive(source, "train"), io="staged", on_corrupt="skip", restart=True)
    assert report.images > 0
