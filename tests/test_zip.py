"""The zip reader: what zipfile lists, CRCs compared, every damage an error."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.errors import DamagedImageError, SourceError
from converter.imagenet import train_name
from converter.osal import RandomReader
from converter.sources import zip_directory, zip_layout
from converter.sources.base import ZIP, Listing, Part, Recognised
from converter.sources.zip_layout import OpenZip, read_member, recognise
from tests.tarmaker import flip, tar
from tests.world import (
    CLASSES,
    INCOMPLETE,
    TRAIN,
    VAL,
    World,
    in_class_folders,
    in_this_process,
    world,
    write,
)
from tests.zipmaker import zipped

__all__ = ["in_this_process", "world"]  # fixtures

IMAGES = in_class_folders(TRAIN)
VARIANTS = {
    "stored": zipped(IMAGES),
    "deflated": zipped(IMAGES, deflate=True),
    "streamed": zipped(IMAGES, streamed=True),
    "streamed deflated": zipped(IMAGES, deflate=True, streamed=True),
    "zip64": zipped(IMAGES, zip64=True),
    "comment": zipped(IMAGES, comment=b"PK\5\6 and more"),
    "folders": zipped(IMAGES, folders=[f"{wnid}/" for wnid in CLASSES]),
}


def list_zip(path: Path) -> list[Listing]:
    """Lists a zip as the scan does: its ranges, or itself."""
    outer = OpenZip(Part(str(path), kind=ZIP))
    parts = outer.divided()
    outer.close()
    listings = []
    for part in parts or [Part(str(path), kind=ZIP)]:
        opened = OpenZip(part)
        listings.append(opened.listing())
        opened.close()
    return listings


def contents(path: Path) -> list[tuple[str, bytes]]:
    """Reads a zip; raises its first damage."""
    found = []
    with RandomReader(path) as reader:
        for listing in list_zip(path):
            places = zip(
                listing.names, listing.offsets.tolist(), listing.sizes.tolist(), strict=True
            )
            found += [(name, read_member(reader, name, at, size)) for name, at, size in places]
            if listing.damage:
                raise SourceError(listing.damage.message)
    return found


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
def test_what_is_in_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    assert contents(path) == IMAGES


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\\"), min_size=1)


@settings(max_examples=60, deadline=None)
@given(
    members=st.lists(st.tuples(NAMES, st.binary(max_size=2000)), unique_by=lambda m: m[0]),
    deflate=st.booleans(),
    streamed=st.booleans(),
    zip64=st.booleans(),
    comment=st.binary(max_size=40),
)
def test_it_agrees_with_zipfile(
    tmp_path_factory: pytest.TempPathFactory,
    members: list[tuple[str, bytes]],
    deflate: bool,
    streamed: bool,
    zip64: bool,
    comment: bytes,
) -> None:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    path.write_bytes(
        zipped(members, deflate=deflate, streamed=streamed, zip64=zip64, comment=comment)
    )
    if not members:
        with pytest.raises(SourceError, match="holds nothing"):
            contents(path)
        return
    with zipfile.ZipFile(path) as archive:
        expected = [(i.filename, archive.read(i)) for i in archive.infolist() if not i.is_dir()]
    assert contents(path) == expected


def test_a_directory_of_several_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_layout, "_ENTRIES_PER_PART", 4)
    monkeypatch.setattr(zip_directory, "_CHUNK", 200)
    path = tmp_path / "a.zip"
    path.write_bytes(VARIANTS["deflated"])
    assert [len(listing.names) for listing in list_zip(path)] == [4, 4, 1]
    assert contents(path) == IMAGES


def test_zip64_beyond_four_gigabytes(tmp_path: Path) -> None:
    """A sparse file: offsets and the directory lie beyond 32 bits."""
    path = tmp_path / "large.zip"
    images = [(train_name(CLASSES[0], n), b"image %d" % n) for n in (1, 2)]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in images:
            archive.writestr(name, data)
            assert archive.fp is not None
            archive.fp.seek(archive.start_dir + (3 << 30))
            archive.fp.write(b"\0")
            archive.start_dir = archive.fp.tell()
    assert path.stat().st_size > 6 << 30
    assert contents(path) == images


def test_more_entries_than_sixteen_bits_count(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    members = [(f"{n}.txt", b"") for n in range(66_000)]
    data = zipped(members)
    path.write_bytes(data)
    assert sum(len(listing.names) for listing in list_zip(path)) == 66_000
    end = data.rindex(b"PK\5\6")  # as writers do that do not know zip64: modulo 65,536
    record = data.rindex(b"PK\6\6")
    count, length, offset = struct.unpack_from("<3Q", data, record + 32)
    plain = struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, length, offset, 0
    )
    path.write_bytes(data[:record] + plain)
    assert end > record
    assert sum(len(listing.names) for listing in list_zip(path)) == 66_000


def test_memory_does_not_grow_with_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.zip"
    monkeypatch.setattr(zip_layout, "_ENTRIES_PER_PART", 4_000)
    names = [f"ILSVRC/Annotations/CLS-LOC/train/n01440764/n01440764_{n}.xml" for n in range(12_000)]
    path.write_bytes(zipped((name, b"") for name in names))
    tracemalloc.start()
    assert isinstance(recognise(path), str)
    outer = OpenZip(Part(str(path), kind=ZIP))
    assert len(outer.divided()) == 3
    outer.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def damage_of(path: Path) -> tuple[str, str]:
    for listing in list_zip(path):
        if listing.damage:
            return listing.damage.kind, listing.damage.message
    return "", ""


def patched_entry(data: bytes, place: int, field: bytes) -> bytes:
    """Returns the zip with a field of the third entry of its directory replaced."""
    at = -1
    for _ in range(3):
        at = data.index(b"PK\1\2", at + 1)
    return data[: at + place] + field + data[at + place + len(field) :]


STORED = VARIANTS["stored"]
THIRD = IMAGES[2][0]


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (patched_entry(STORED, 8, b"\1\0"), "unsupported", f'member "{THIRD}" at byte'),
        (patched_entry(STORED, 8, b"\1\0"), "unsupported", "is encrypted"),
        (patched_entry(STORED, 10, b"\x09\0"), "unsupported", "is compressed with Deflate64"),
        (zipped(IMAGES, method=zipfile.ZIP_LZMA), "unsupported", "is compressed with LZMA"),
        (zipped(IMAGES, method=zipfile.ZIP_BZIP2), "unsupported", "is compressed with bzip2"),
        (patched_entry(STORED, 16, b"\0\0\0\0"), "bad-header", "contradicts the directory"),
        (patched_entry(STORED, 24, b"\1\0\0\0"), "bad-header", "contradicts the directory"),
        (patched_entry(STORED, 46, b"m"), "bad-header", "contradicts the directory"),
        (patched_entry(STORED, 42, b"\7\0\0\0"), "bad-header", "no header of a member at byte 7"),
        (patched_entry(STORED, 0, b"PK\1\3"), "bad-header", "a damaged entry of the directory"),
        (STORED[:-1], "truncated", "the directory at its end is missing"),
        (STORED[: len(STORED) // 2], "truncated", "the file is cut at byte"),
        (STORED[:500] + STORED[600:], "bad-header", "bytes are missing"),
        (b"PK\3\4junk" + STORED, "bad-header", "or were put in front"),
        (STORED + b"more", "truncated", "or something was added to it"),
        (STORED[:-18] + b"\1\0\1\0" + STORED[-14:], "unsupported", "one of several volumes"),
        (STORED[:-14] + b"\x08\0\x08\0" + STORED[-10:], "", ""),
        (zipped([]), "empty", "the zip file holds nothing"),
    ],
)  # fmt: skip
def test_damage(tmp_path: Path, data: bytes, kind: str, said: str) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    if not kind:  # entries on this disk and in all: one of the directory's counts is wrong
        kind, said = "bad-header", "where it claims 8"
    found = damage_of(path)
    assert found[0] == kind
    assert said in found[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_flipped_bit_never_gives_other_bytes(tmp_path: Path, variant: str) -> None:
    path, data = tmp_path / "a.zip", VARIANTS[variant]
    rnd = random.Random(7)
    right = dict(IMAGES)
    unnoticed = 0
    for _ in range(60):
        path.write_bytes(flip(data, rnd.randrange(len(data)), rnd.randrange(8)))
        try:
            found = dict(contents(path))
        except SourceError:
            continue
        unnoticed += 1
        for name, content in found.items():
            assert right.get(name, content) == content  # a name flipped in both places is another
        assert len(found) == len(right)
    assert unnoticed < 30  # dates and attributes do not matter


def test_a_cut_zip_is_never_a_shorter_one(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    for variant in ("stored", "streamed deflated"):
        data = VARIANTS[variant]
        for length in range(0, len(data), 37):
            path.write_bytes(data[:length])
            assert damage_of(path)[0], length


def corrupted(deflate: bool, streamed: bool) -> tuple[bytes, str]:
    data = zipped([*IMAGES, *VAL], deflate=deflate, streamed=streamed)
    name = VAL[3][0]
    at = data.index(name.encode()) + len(name) + 40
    return flip(data, at), name


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_wrong_crc_is_a_corrupt_image(world: World, deflate: bool, streamed: bool) -> None:
    data, name = corrupted(deflate, streamed)
    write(world.empty(), [("all.zip", data)])
    for validate in ("off", "decode"):
        code, said = world.run(INCOMPLETE, "--validate", validate)
        assert code == 5
        assert f"{world.source / 'all.zip'}!{name} at byte" in said
        assert "is damaged" in said
    code, said = world.run(INCOMPLETE, "--on-corrupt", "keep")
    assert code == 3
    assert "is damaged" in said
    assert world.run(INCOMPLETE, "--on-corrupt", "skip")[0] == 0
    world.assert_right([*VAL[:3], *VAL[4:]])


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    name = VAL[0][0]
    data = bytearray(zipped([(name, bytes(50 << 20))], deflate=True))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<L", data, data.index(signature) + place, 1000)
    path = tmp_path / "bomb.zip"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(DamagedImageError, match="1,001 bytes or more, where 1,000 belong"):
        contents(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_stream_that_ends_early_is_damage(tmp_path: Path) -> None:
    path, name = tmp_path / "a.zip", VAL[0][0]
    data = bytearray(zipped([(name, b"short")], deflate=True))
    for signature, place in ((b"PK\3\4", 14), (b"PK\1\2", 16)):
        struct.pack_into("<L", data, data.index(signature) + place, zlib.crc32(b"longer one"))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<L", data, data.index(signature) + place, 10)
    path.write_bytes(data)
    with pytest.raises(DamagedImageError, match="it has 5 bytes"):
        contents(path)


def test_class_tars_that_are_compressed_in_a_zip_are_refused(world: World) -> None:
    tars = [(f"{wnid}.tar", tar(images)) for wnid, images in TRAIN.items()]
    write(world.empty(), [("train.zip", zipped(tars, deflate=True)), ("v.zip", zipped(VAL))])
    code, said = world.run(INCOMPLETE)
    assert code == 3
    assert "it is compressed in the zip file; unpack it first" in said


def test_what_a_zip_is_taken_for(tmp_path: Path) -> None:
    def verdict(data: bytes) -> Recognised | str | None:
        path = tmp_path / "a.zip"
        path.write_bytes(data)
        return recognise(path)

    classes = verdict(VARIANTS["stored"])
    assert isinstance(classes, Recognised)
    assert (classes.layout, classes.splits) == ("class folders in a zip file", ("train",))
    flat = verdict(zipped([*VAL, ("n01440764_1.JPEG", b"x")]))
    assert isinstance(flat, Recognised)
    assert (flat.layout, flat.splits) == ("images in a zip file", ("train", "validation"))
    said = verdict(zipped([("a.txt", b"x"), ("imagenet_object_localization.tar.gz", b"x")]))
    assert isinstance(said, str)
    assert "holds imagenet_object_localization.tar.gz; unpack it first" in said
    assert verdict(tar(VAL)) is None
    assert "such as a.JPEG" in str(verdict(zipped([("a.JPEG", b"x")])))
    assert "holds nothing" in str(verdict(zipped([])))
    assert "cannot be used: the directory at its end" in str(verdict(STORED[:-5]))


def test_links_in_a_zip_are_not_followed(world: World) -> None:
    path = world.empty() / "v.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in VAL:
            archive.writestr(name, data)
        link = zipfile.ZipInfo("ILSVRC2012_val_00000013.JPEG")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, VAL[0][0])
    code, said = world.run(INCOMPLETE, "--splits", "validation")
    assert code == 3
    assert "they are not followed" in said
