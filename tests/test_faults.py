"""Failing system calls: tried again where that helps, named where it does not."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from converter import convert, errors, osal
from converter.demo import DemoSize, make_archives
from converter.errors import ConversionError, NoSpaceError, OutputError, SourceReadError
from converter.osal import RandomReader
from tests.world import stay_in_this_process

SIZE = DemoSize(
    images_per_class=1, validation=5, test=0, classes=3, width=16, height=16, mean_bytes=700
)


def failing(times: int, code: int, real: Callable[..., object]) -> Callable[..., object]:
    left = times

    def call(*args: object, **options: object) -> object:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(code, os.strerror(code))
        return real(*args, **options)

    return call


def subclasses(kind: type[ConversionError]) -> list[type[ConversionError]]:
    return [kind, *(deeper for one in kind.__subclasses__() for deeper in subclasses(one))]


def test_every_error_survives_the_way_out_of_a_worker() -> None:
    kinds = subclasses(ConversionError)
    assert len(kinds) >= 12
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what, where, what next")))
        assert type(copy) is kind
        assert str(copy) == "what, where, what next"
    codes = {kind.__name__: kind.exit_code for kind in kinds}
    assert codes["UsageError"] == 2
    assert codes["SourceReadError"] == codes["VerificationError"] == 3
    assert codes["NoSpaceError"] == codes["LockedError"] == 4
    assert codes["CorruptImagesError"] == 5
    assert (errors.Interrupted.exit_code, errors.Terminated.exit_code) == (130, 143)


def test_messages_show_any_name_on_any_console() -> None:
    assert errors.printable("a\u5199\n\x1b[1m\udcff") == r"a\u5199\n\x1b[1m\udcff"


def test_a_read_is_tried_again_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osal.reading, "READ_PAUSE_SECONDS", 0.001)
    path = tmp_path / "source"
    path.write_bytes(bytes(range(100)))
    real = RandomReader._read_once
    with RandomReader(path) as reader:
        monkeypatch.setattr(RandomReader, "_read_once", failing(3, errno.EIO, real))
        assert reader.read_at(10, 5) == bytes(range(10, 15))
        monkeypatch.setattr(RandomReader, "_read_once", failing(99, errno.EIO, real))
        with pytest.raises(SourceReadError, match=r"source at byte 10: .* \(errno 5\), 4 attempts"):
            reader.read_at(10, 5)
    with pytest.raises(SourceReadError, match=r"cannot open .*absent"):
        RandomReader(tmp_path / "absent")


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(100)))
    real = RandomReader._read_once

    def short(reader: RandomReader, offset: int, size: int) -> bytes:
        return real(reader, offset, min(size, 7))

    monkeypatch.setattr(RandomReader, "_read_once", short)
    with RandomReader(path) as reader:
        assert reader.read_at(10, 50) == bytes(range(10, 60))
        assert reader.read_at(90, 50) == bytes(range(90, 100))


@pytest.mark.parametrize(
    ("module", "call", "code", "kind", "said"),
    [
        (os, "fsync", errno.EIO, OutputError, "errno 5"),
        (os, "fsync", errno.ENOSPC, NoSpaceError, "no space on"),
        (os, "fsync", errno.EDQUOT, NoSpaceError, "the disk quota on"),
        (osal, "replace", errno.EACCES, OutputError, "Permission denied"),
        (osal, "fsync_folder", errno.EIO, OutputError, "errno 5"),
    ],
)
@pytest.mark.parametrize("at", range(1, 9, 2))
def test_a_failing_disk_is_named_and_the_next_run_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    call: str,
    code: int,
    kind: type[OutputError],
    said: str,
    at: int,
) -> None:
    stay_in_this_process(monkeypatch)
    make_archives(tmp_path / "tars", SIZE)
    out = tmp_path / "out"
    real, count = getattr(module, call), 0

    def sometimes(*args: object, **options: object) -> object:
        nonlocal count
        count += 1
        if count == at:
            raise OSError(code, os.strerror(code))
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, call, sometimes)
        failure: OutputError | None = None
        try:
            convert(tmp_path / "tars", out, workers=1, allow_incomplete=True)
        except OutputError as error:
            failure = error
    if count < at:
        assert failure is None
    else:
        assert type(failure) is kind
        assert said in str(failure)
    final = out / "imagenet2012" / "5.1.0"
    if not final.exists():
        assert not list(out.rglob("*.tmp"))
        convert(tmp_path / "tars", out, workers=1, allow_incomplete=True)
    assert {path.name for path in final.iterdir()} >= {"SHA256SUMS", "dataset_info.json"}
