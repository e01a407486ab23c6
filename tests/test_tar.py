"""The strict tar reader: honest archives of every kind, and every damage named."""

from __future__ import annotations

import csv
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converter.osal import RandomReader
from converter.sources.tar import TarListing, list_members
from tests.tarmaker import BLOCK, flip, header_of, tar, zero

FILES = [(f"n01440764_{n}.JPEG", bytes([n]) * (100 + 300 * n)) for n in range(1, 8)]
GOOD = tar(FILES)
CORPUS = os.environ.get("IMAGENET_CONVERT_CORPUS")


def listing_of(data: bytes, path: Path, **options: int) -> TarListing:
    path.write_bytes(data)
    with RandomReader(path) as reader:
        return list_members(reader, **options)


def contents(listing: TarListing, data: bytes) -> list[tuple[str, bytes]]:
    places = zip(listing.names, listing.offsets.tolist(), listing.sizes.tolist(), strict=True)
    return [(name, data[offset : offset + size]) for name, offset, size in places]


def corpus_table() -> list[dict[str, str]]:
    if not CORPUS:
        return []
    with open(Path(CORPUS, "tar", "EXPECTED.tsv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(not CORPUS, reason="IMAGENET_CONVERT_CORPUS names no corpus")
def test_published_archives() -> None:
    """Valid ones list what Python lists; corrupt and disputed ones are refused."""
    table = corpus_table()
    assert len(table) == 44
    for row in table:
        with RandomReader(Path(CORPUS or "", "tar", row["file"])) as reader:
            listing = list_members(reader)
        if row["judgement"].startswith("valid"):
            found = f"ok:{len(listing.names) + len(listing.others)}"
            assert (row["file"], found) == (row["file"], row["python_tarfile_stream"])
            assert listing.damage is None, row["file"]
            assert listing.has_end_marker or "eof-block" not in row["features"].split()
        else:
            assert listing.damage is not None, row["file"]


@pytest.mark.parametrize(
    "tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
@pytest.mark.parametrize(
    "prefix", ["", "./", "val/", "d" * 90 + "/", "e" * 50 + "/" + "f" * 90 + "/"]
)
def test_honest_archives(tmp_path: Path, tar_format: int, prefix: str) -> None:
    data = tar(FILES, prefix=prefix, tar_format=tar_format, folders=bool(prefix))
    listing = listing_of(data, tmp_path / "a.tar")
    assert contents(listing, data) == [(prefix + name, content) for name, content in FILES]
    assert [other.kind for other in listing.others] == ["folder"] * bool(prefix)
    assert (listing.damage, listing.has_end_marker) == (None, True)


def test_names_outside_ascii_and_very_long_ones(tmp_path: Path) -> None:
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        files = [("写真/" + "x" * 300 + ".JPEG", b"1"), ("plain.JPEG", b"2")]
        data = tar(files, tar_format=tar_format)
        assert contents(listing_of(data, tmp_path / "a.tar"), data) == files


def test_links_and_devices_are_reported_not_followed(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (("s", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE), ("f", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    listing = listing_of(buffer.getvalue(), tmp_path / "a.tar")
    assert listing.names == []
    assert [(o.name, o.kind, o.offset) for o in listing.others] == [
        ("s", "symbolic link", 0),
        ("h", "hard link", 512),
        ("f", "fifo", 1024),
    ]


def test_an_archive_inside_another_is_read_in_place(tmp_path: Path) -> None:
    inner = tar(FILES)
    outer = tar([("n01440764.tar", inner), ("z", b"z")])
    found = listing_of(outer, tmp_path / "a.tar")
    start, size = int(found.offsets[0]), int(found.sizes[0])
    listing = listing_of(outer, tmp_path / "a.tar", start=start, end=start + size)
    assert contents(listing, outer) == FILES
    assert listing.damage is None


def test_peeking_stops_early(tmp_path: Path) -> None:
    listing = listing_of(flip(GOOD, len(GOOD) // 2), tmp_path / "a.tar", limit=2)
    assert listing.names == [name for name, _ in FILES[:2]]
    assert listing.damage is None


def with_size(data: bytes, name: str, field: bytes) -> bytes:
    at = header_of(data, name)
    header = bytearray(data[at : at + BLOCK])
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:at] + bytes(header) + data[at + BLOCK :]


THIRD = FILES[2][0]
AT = header_of(GOOD, THIRD)
NEXT = header_of(GOOD, FILES[3][0])
END = len(tar(FILES, end=False))


def test_base_256_sizes(tmp_path: Path) -> None:
    data = with_size(GOOD, THIRD, b"\x80" + len(FILES[2][1]).to_bytes(11, "big"))
    listing = listing_of(data, tmp_path / "a.tar")
    assert contents(listing, data) == FILES
    assert listing.damage is None


@pytest.mark.parametrize(
    ("data", "kind", "offset", "said"),
    [
        (b"", "empty", 0, "the archive is empty"),
        (bytes(10240), "hole", 0, "filled with zeros from byte 0"),
        (b"<html>" * 200, "not-tar", 0, "this is no tar"),
        (flip(GOOD, AT + 3), "bad-header", AT, "checksum is wrong"),
        (flip(GOOD, AT + 150, 2), "bad-header", AT, "checksum is wrong"),
        (zero(GOOD, AT, AT + BLOCK), "hole", AT, f"goes on at byte {NEXT}"),
        (zero(GOOD, AT, NEXT + BLOCK), "hole", AT, "goes on at byte"),
        (GOOD[: AT + 100], "truncated", AT, "inside a header"),
        (GOOD[: AT + BLOCK + 10], "truncated", AT, "needs 1,000 bytes, of which 10 are there"),
        (GOOD + b"x", "trailing-data", END, f"data follows at byte {len(GOOD)}"),
        (GOOD + GOOD, "hole", END, f"goes on at byte {len(GOOD)}"),
        (with_size(GOOD, THIRD, b"\xff" * 12), "bad-header", AT, "a number that is none"),
        (with_size(GOOD, THIRD, b"7" * 11 + b"\0"), "truncated", AT, "needs 8,589,934,591 bytes"),
        (with_size(GOOD, THIRD, b"\x80" + b"\xff" * 11), "truncated", AT, "needs 309,485,009"),
        (with_size(GOOD, THIRD, b"00000008888\0"), "bad-header", AT, "a number that is none"),
    ],
)
def test_damage_is_named_with_its_place(
    tmp_path: Path, data: bytes, kind: str, offset: int, said: str
) -> None:
    damage = listing_of(data, tmp_path / "a.tar").damage
    assert damage is not None
    assert (damage.kind, damage.offset) == (kind, offset)
    assert said in damage.message
    assert "of the archive was readable" in damage.message
    if offset == AT:
        assert f'last good member is "{FILES[1][0]}"' in damage.message


def test_an_inner_archive_that_runs_past_the_file_is_truncated(tmp_path: Path) -> None:
    listing = listing_of(GOOD[:END], tmp_path / "a.tar", start=0, end=len(GOOD))
    assert listing.damage is not None
    assert "bytes of it lie beyond the end of the file" in listing.damage.message


def test_every_cut_is_an_error_or_falls_between_members(tmp_path: Path) -> None:
    ends = {
        header_of(GOOD, name) + BLOCK + len(content): n + 1
        for n, (name, content) in enumerate(FILES)
    }
    for length in [*range(1, END, 97), *range(BLOCK, END, BLOCK)]:
        data = GOOD[:length]
        listing = listing_of(data, tmp_path / "a.tar")
        assert not listing.has_end_marker
        whole = [
            count for end, count in ends.items() if end <= length < -(-end // BLOCK) * BLOCK + 1
        ]
        if listing.damage is None:
            assert len(listing.names) == whole[0]
        assert contents(listing, data) == FILES[: len(listing.names)]


def test_hostile_extensions_take_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 34)
    tracemalloc.start()
    with RandomReader(path) as reader:
        damage = list_members(reader).damage
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert damage is not None
    assert "an extended header of 8,589,934,592 bytes" in damage.message
    assert peak < 4 << 20


def test_a_preallocated_rest_is_a_hole_found_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        file.write(GOOD[:END])
        file.truncate(1 << 40)
    with RandomReader(path) as reader:
        damage = list_members(reader).damage
    assert damage is not None
    assert (damage.kind, damage.offset) == ("hole", END)


spans = st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 1500))


@settings(
    derandomize=True,
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(["flip", "cut", "zero", "repeat", "swap", "drop"]), spans, spans)
def test_no_mutation_loses_a_member_in_silence(
    tmp_path: Path, how: str, first: tuple[int, int], second: tuple[int, int]
) -> None:
    start, end = first[0], min(first[0] + first[1], len(GOOD))
    other = min(second[0], len(GOOD) - (end - start))
    data = {
        "flip": lambda: flip(GOOD, start, second[0] % 8),
        "cut": lambda: GOOD[:start],
        "zero": lambda: zero(GOOD, start, end),
        "repeat": lambda: GOOD[:end] + GOOD[start:end] + GOOD[end:],
        "drop": lambda: GOOD[:start] + GOOD[end:],
        "swap": lambda: swapped(start, other, end - start),
    }[how]()
    listing = listing_of(data, tmp_path / "a.tar")
    names = [name for name, _ in FILES]
    if listing.damage is None:
        lost = [name for name in names if name not in listing.names]
        if lost and set(listing.names) <= set(names) and listing.has_end_marker:
            # Whole blocks may form another honest archive; the index then misses the names.
            assert how in ("drop", "swap", "repeat") or (how == "zero" and end >= END)
            assert (end - start) % BLOCK == 0 or how == "zero" or end > END
        for name, content in contents(listing, data):
            assert name not in dict(FILES) or len(content) == len(dict(FILES)[name])


def swapped(first: int, second: int, length: int) -> bytes:
    data = bytearray(GOOD)
    data[first : first + length], data[second : second + length] = (
        GOOD[second : second + length],
        GOOD[first : first + length],
    )
    return bytes(data)
