"""Streams: the tar reader judges them as it judges files; compressed data is read strictly."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from converter.errors import SourceReadError
from converter.sources.base import ENDLESS, Listing
from converter.sources.compression import DamagedStreamError
from converter.sources.stream import Stream, StreamReader
from converter.sources.tar import list_members
from tests.system import not_on_windows
from tests.tarmaker import BLOCK, cut, flip, header_of, nested, tar, zero
from tests.test_tar import Memory, images

FILES = images(1)
GOOD = tar(FILES)
AT = header_of(GOOD, FILES[2][0])
END = len(tar(FILES, end=False))


def zstd(data: bytes) -> bytes:
    return bytes(pytest.importorskip("backports.zstd").compress(data))


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def pieces(data: bytes, length: int = 1000) -> Iterator[bytes]:
    for start in range(0, len(data), length):
        yield data[start : start + length]


def passed(data: bytes, piece: int = 1000) -> tuple[Listing, dict[str, bytes]]:
    """Lists a stream; returns what was seen of each regular file as it passed."""
    reader, seen = StreamReader(pieces(data, piece)), {}

    def take(name: str, offset: int, size: int) -> None:
        seen[name] = reader.read_at(offset, size)

    listing = list_members(reader, passing=take)
    reader.close()
    return listing, seen


def agree(data: bytes) -> None:
    stream, file = passed(data)[0], list_members(Memory(data))
    assert stream.names == file.names
    assert stream.offsets.tolist() == file.offsets.tolist()
    assert (stream.damage is None) == (file.damage is None)
    assert stream.has_end_marker == file.has_end_marker
    if stream.damage and file.damage:
        assert stream.damage.kind == file.damage.kind


@pytest.mark.parametrize("piece", [1, 511, 512, 100_000])
def test_members_are_seen_as_they_pass(piece: int) -> None:
    listing, seen = passed(GOOD, piece)
    assert listing.damage is None
    assert listing.has_end_marker
    assert list(seen.items()) == FILES


@pytest.mark.parametrize("step", range(8))
def test_cut_anywhere_a_stream_is_judged_as_a_file(step: int) -> None:
    for length in [*range(step * 61, len(GOOD), 8 * 61), *range(step * 512, len(GOOD), 8 * 512)]:
        agree(cut(GOOD, length))


def test_damage_is_judged_as_in_a_file() -> None:
    rnd = random.Random(5)
    for _ in range(100):
        agree(flip(GOOD, AT + rnd.randrange(BLOCK), rnd.randrange(8)))
    agree(zero(GOOD, AT, AT + 2 * BLOCK))
    agree(zero(GOOD, AT, len(GOOD)))
    agree(GOOD + b"more")
    agree(GOOD + GOOD)
    agree(GOOD + bytes(3 << 20) + b"more")
    agree(GOOD + bytes(3 << 20))
    agree(b"")
    agree(b"x")
    agree(bytes(10_000))


def test_a_hole_in_a_stream_says_where_it_goes_on() -> None:
    data = zero(GOOD, AT, AT + 2 * BLOCK)
    damage = passed(data)[0].damage
    assert damage is not None
    assert f"a zero-filled hole at byte {AT}; the archive goes on at byte" in damage.message
    more = flip(GOOD, AT + 20) + bytes(3 << 20)
    damage = passed(more)[0].damage
    assert damage is not None
    assert f"checksum is wrong at byte {AT}" in damage.message
    assert "of the archive was readable" not in damage.message  # its length is not known yet


def test_archives_inside_are_walked_as_they_pass() -> None:
    data = nested({"n01440764": FILES, "n01443537": images(2)})
    reader, seen = StreamReader(pieces(data)), []

    def enter(name: str, offset: int, size: int) -> None:
        inner = list_members(
            reader,
            offset,
            offset + size,
            passing=lambda name, at, size: seen.append((name, reader.read_at(at, size))),
        )
        assert inner.damage is None

    outer = list_members(reader, passing=enter)
    assert (outer.damage, outer.names) == (None, ["n01440764.tar", "n01443537.tar"])
    assert seen == [*FILES, *images(2)]


def test_what_has_passed_cannot_be_read_again() -> None:
    reader = StreamReader(pieces(random.Random(1).randbytes(4 << 20), 100_000))
    assert len(reader.read_at(3 << 20, 10)) == 10
    with pytest.raises(ValueError, match="has passed"):
        reader.read_at(0, 10)
    assert reader.size == ENDLESS
    assert len(reader.read_at(4 << 20, 10)) == 0
    assert reader.size == 4 << 20


def unpack(path: Path) -> bytes:
    reader = Stream(str(path)).reader()
    reader.skip_to(ENDLESS)
    data, reader = b"", Stream(str(path)).reader()
    while piece := reader.read_at(len(data), 1 << 16):
        data += piece
    return data


@pytest.mark.parametrize("kind", PACK)
def test_compressed_data(kind: str, tmp_path: Path) -> None:
    path, pack = tmp_path / "a", PACK[kind]
    data = random.Random(2).randbytes(100_000) + bytes(1_000_000)
    for packed in (pack(data), pack(data[:99]) + pack(data[99:]), pack(data) + bytes(700)):
        path.write_bytes(packed)
        assert unpack(path) == data


@pytest.mark.parametrize("kind", PACK)
def test_cut_compressed_data_is_refused(kind: str, tmp_path: Path) -> None:
    path, packed = tmp_path / "a", PACK[kind](GOOD + random.Random(3).randbytes(1000))
    for length in [*range(7, len(packed), len(packed) // 40), len(packed) - 1]:
        path.write_bytes(packed[:length])
        with pytest.raises(DamagedStreamError, match=f"is cut: it ends at byte {length}"):
            unpack(path)
    path.write_bytes(packed + b"more than enough")
    with pytest.raises(DamagedStreamError, match=f"other data follows .* at byte {len(packed)}"):
        unpack(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_flipped_bit_of_compressed_data_is_refused(kind: str, tmp_path: Path) -> None:
    path, rnd = tmp_path / "a", random.Random(4)
    packed = PACK[kind](GOOD)
    for _ in range(40):
        place = rnd.randrange(20, len(packed))
        path.write_bytes(flip(packed, place, rnd.randrange(8)))
        with pytest.raises(DamagedStreamError, match="bytes of the tar in it were good"):
            unpack(path)


def test_digests_are_of_what_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(GOOD))
    reader = Stream(str(path)).reader(with_md5=True)
    with pytest.raises(ValueError, match="not ended"):
        reader.digests()
    reader.skip_to(ENDLESS)
    assert reader.digests() == (hashlib.sha256(GOOD).hexdigest(), hashlib.md5(GOOD).hexdigest())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_with_a_name(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(GOOD,), daemon=True).start()
    stream = Stream(str(path))
    assert list_members(stream.reader()).names == [name for name, _ in FILES]


def test_a_failing_read_names_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(300_000))
    stream = Stream(str(path))

    class Failing:
        def readinto(self, room: memoryview) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(stream._input, "_file", Failing())
    with pytest.raises(SourceReadError, match=f"at byte {Stream.HEAD}: Input/output error"):
        stream.reader().skip_to(ENDLESS)
    with pytest.raises(SourceReadError, match=r"cannot open .*nowhere"):
        Stream(str(tmp_path / "nowhere"))


@not_on_windows("pipes have no such mode")
def test_a_pipe_that_will_not_wait_has_not_ended() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    data = random.Random(0).randbytes(3 << 20)

    def write() -> None:
        with open(theirs, "wb") as file:
            for start in range(0, len(data), 1 << 20):
                time.sleep(0.05)
                file.write(data[start : start + (1 << 20)])
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    stream = Stream(f"/dev/fd/{ours}")
    os.set_blocking(stream._input._file.fileno(), False)
    reader = stream.reader()
    assert reader.read_at(0, len(data) + 1) == data
    writer.join()
    reader.close()
    stream.close()
    os.close(ours)
