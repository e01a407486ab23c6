"""The strict tar reader: honest archives of every kind, and every damage named."""

from __future__ import annotations

import csv
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.osal import RandomReader
from converter.sources.base import Listing
from converter.sources.tar import list_members
from tests import tarmaker
from tests.tarmaker import BLOCK, JUNK, V7_FORMAT, cut, flip, header_of, nested, patched, tar, zero

Files = list[tuple[str, bytes]]

CORPUS = os.environ.get("IMAGENET_CONVERT_CORPUS")
FORMATS = {
    "v7": V7_FORMAT,
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}


class Memory(RandomReader):
    """A file that exists only in memory, zeros behind its head; counts what is read."""

    def __init__(self, head: bytes, size: int | None = None) -> None:
        self.path = "memory.tar"
        self.size = len(head) if size is None else size
        self.bytes_read = 0
        self._head = head

    def read_at(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        self.bytes_read += size
        return self._head[offset : offset + size].ljust(size, b"\0")

    def close(self) -> None:
        """There is nothing to close."""


def images(seed: int, count: int = 7, prefix: str = "") -> Files:
    rnd = random.Random(seed)
    return [
        (f"{prefix}n01440764_{n}.JPEG", rnd.randbytes(100 + 300 * n)) for n in range(1, count + 1)
    ]


FILES = images(1)
GOOD = tar(FILES)
AT = header_of(GOOD, FILES[2][0])
NEXT = header_of(GOOD, FILES[3][0])
END = len(tar(FILES, end=False))


def listing_of(data: bytes, start: int = 0, end: int | None = None) -> Listing:
    return list_members(Memory(data), start, end)


def contents(listing: Listing, data: bytes) -> Files:
    places = zip(listing.names, listing.offsets.tolist(), listing.sizes.tolist(), strict=True)
    return [(name, data[offset : offset + size]) for name, offset, size in places]


def corpus_table() -> list[dict[str, str]]:
    if not CORPUS:
        return []
    with open(Path(CORPUS, "tar", "EXPECTED.tsv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(not CORPUS, reason="IMAGENET_CONVERT_CORPUS names no corpus")
@pytest.mark.parametrize("row", corpus_table(), ids=lambda row: str(row["file"]))
def test_published_archives(row: dict[str, str]) -> None:
    """Valid ones list what Python lists; corrupt and disputed ones are refused.

    Three disputed ones (hdr-only, pax-bad-hdr-file, pax-nul-xattrs) GNU tar refuses, one
    (pax-path-hdr) Python does: a header that describes a member which never comes.
    """
    path = Path(CORPUS or "", "tar", row["file"])
    with RandomReader(path) as reader:
        listing = list_members(reader)
    if not row["judgement"].startswith("valid"):
        assert listing.damage is not None
        return
    assert listing.damage is None
    assert f"ok:{len(listing.names) + len(listing.others)}" == row["python_tarfile_stream"]
    features = row["features"].split()
    if not any(feature.startswith("bad-checksum") for feature in features):  # nor was the end read
        assert listing.has_end_marker == ("eof-block" in features)
    with tarfile.open(path) as archive:
        regular = [m for m in archive.getmembers() if m.isreg() and not m.issparse()]
    assert listing.offsets.tolist() == [m.offset_data for m in regular]
    assert listing.sizes.tolist() == [m.size for m in regular]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("prefix", ["", "./", "val/", "d" * 60 + "/"])
def test_honest_archives(form: str, prefix: str) -> None:
    data = tar(FILES, prefix=prefix, tar_format=FORMATS[form], folders=bool(prefix))
    listing = listing_of(data)
    assert contents(listing, data) == [(prefix + name, content) for name, content in FILES]
    assert [(other.kind, other.offset) for other in listing.others] == [("folder", 0)] * bool(
        prefix
    )
    assert (listing.damage, listing.has_end_marker) == (None, True)


@pytest.mark.parametrize("form", ["ustar", "gnu", "pax"])
def test_long_prefixes(form: str) -> None:
    files = images(2, prefix="e" * 50 + "/" + "f" * 90 + "/")
    data = tar(files, tar_format=FORMATS[form])
    assert contents(listing_of(data), data) == files


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_names_outside_ascii_and_very_long_ones(form: str) -> None:
    files = [("写真/" + "x" * 300 + ".JPEG", b"1"), ("é.JPEG", b"2"), ("plain", b"3")]
    data = tar(files, tar_format=FORMATS[form])
    assert contents(listing_of(data), data) == files


def test_a_name_that_is_not_utf8_survives() -> None:
    data = patched(GOOD, AT, 0, b"\xe9\xff")
    name = listing_of(data).names[2]
    assert name.encode("utf-8", "surrogateescape") == b"\xe9\xff" + FILES[2][0][2:].encode()


def test_a_pax_header_overrides_name_and_size() -> None:
    """As for members beyond 8 GiB, whose header says 0; global records count until overridden."""
    with_pax = [("a", b"12345"), ("b", b"67")]
    data = tar(with_pax)
    for at in (0, 1024):
        data = patched(data, at, 124, b"%011o\0" % 0)
    common = pax_header(b"g", b"13 path=all\n" + b"10 size=5\n")
    own = pax_header(b"x", b"12 path=one\n" + b"10 size=2\n")
    data = common + data[:1024] + own + data[1024:]
    assert contents(listing_of(data), data) == []  # the length of a record is wrong
    data = data.replace(b"13 path=all", b"12 path=all")
    assert contents(listing_of(data), data) == [("all", b"12345"), ("one", b"67")]


def pax_header(kind: bytes, payload: bytes) -> bytes:
    block = tar([("pax", payload)], end=False)
    return patched(block, 0, 156, kind)


def test_links_devices_and_sparse_members_are_reported_not_followed() -> None:
    data = tar([], links={"s": "/etc/passwd"}, end=False)
    for name, kind in (("h", b"1"), ("d", b"3"), ("f", b"6"), ("z", b"Z")):
        data += patched(tar([(name, b"")], end=False), 0, 156, kind)
    data += pax_header(b"x", b"22 GNU.sparse.major=1\n") + tar([("p", b"data")])
    listing = listing_of(data)
    assert (listing.names, listing.damage) == ([], None)
    assert [(o.name, o.kind) for o in listing.others] == [
        ("s", "symlink"),
        ("h", "hardlink"),
        ("d", "device"),
        ("f", "fifo"),
        ("z", "unknown type Z"),
        ("p", "sparse"),
    ]
    assert listing.others[1].offset == 512


def test_junk_is_listed_like_any_file() -> None:
    data = tar([*JUNK, *FILES], prefix="./")
    assert listing_of(data).names == [f"./{name}" for name, _ in (*JUNK, *FILES)]


def test_base_256_sizes_and_signed_checksums() -> None:
    data = patched(GOOD, AT, 124, b"\x80" + len(FILES[2][1]).to_bytes(11, "big"))
    assert contents(listing_of(data), data) == FILES
    block = bytearray(patched(GOOD, AT, 300, b"\xe9"))
    block[AT + 148 : AT + 156] = b"%06o\0 " % (int(block[AT + 148 : AT + 154], 8) - 256)
    assert contents(listing_of(bytes(block)), data) == FILES


def test_an_archive_inside_another_is_read_in_place() -> None:
    outer = nested({"n01440764": FILES, "n01443537": images(3)}, prefix="train/", extra=JUNK)
    found = listing_of(outer)
    for number, files in ((2, FILES), (3, images(3))):
        start, size = int(found.offsets[number]), int(found.sizes[number])
        listing = listing_of(outer, start, start + size)
        assert contents(listing, outer) == files
        assert (listing.damage, listing.has_end_marker) == (None, True)


def test_peeking_stops_early() -> None:
    reader = Memory(flip(GOOD, AT))
    listing = list_members(reader, limit=2)
    assert (listing.names, listing.damage) == ([name for name, _ in FILES[:2]], None)
    assert reader.bytes_read == 2 * BLOCK


@pytest.mark.parametrize(("zeros", "marker"), [(0, False), (512, False), (1024, True)])
def test_a_missing_or_lone_final_block_is_honest(zeros: int, marker: bool) -> None:
    listing = listing_of(GOOD[:END] + bytes(zeros))
    assert (len(listing.names), listing.damage, listing.has_end_marker) == (7, None, marker)


LONG = tar([("x" * 200, b"1")], tar_format=tarfile.GNU_FORMAT)
PAX = tar([("x" * 200, b"1")], tar_format=tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    ("data", "kind", "offset", "said"),
    [
        (b"", "empty", 0, "the archive is empty"),
        (bytes(10240), "hole", 0, "it is zero-filled from byte 0 to byte 10240"),
        (b"<html>" * 200, "not-tar", 0, "this is no tar"),
        (b"<html>", "not-tar", 0, "this is no tar: it has 6 bytes"),
        (flip(GOOD, AT + 3), "bad-header", AT, f"checksum is wrong at byte {AT}"),
        (flip(GOOD, AT + 150, 2), "bad-header", AT, "checksum is wrong"),
        (flip(GOOD, AT + 500, 7), "bad-header", AT, "checksum is wrong"),
        (zero(GOOD, AT, AT + BLOCK), "hole", AT, f"goes on at byte {NEXT}"),
        (zero(GOOD, AT, NEXT + BLOCK), "hole", AT, "goes on at byte"),
        (GOOD[:AT] + bytes(BLOCK) + GOOD[AT:], "hole", AT, f"goes on at byte {AT + BLOCK}"),
        (cut(GOOD, AT + 100), "truncated", AT, "inside a header"),
        (cut(GOOD, AT + BLOCK + 10), "truncated", AT, "needs 1,000 bytes, of which 10 are there"),
        (cut(GOOD, NEXT - 1), "truncated", NEXT - 1, f"ends at byte {NEXT - 1}, inside a block"),
        (cut(GOOD, END + 100), "truncated", END, "inside a header"),
        (GOOD + b"x", "trailing-data", END, f"data follows at byte {len(GOOD)}"),
        (GOOD + GOOD, "hole", END, f"goes on at byte {len(GOOD)}"),
        (patched(GOOD, AT, 124, b"\xff" * 12), "bad-header", AT, "number that is none"),
        (patched(GOOD, AT, 124, b"7" * 11 + b"\0"), "truncated", AT, "needs 8,589,934,591 bytes"),
        (patched(GOOD, AT, 124, b"\x80" + b"\xff" * 11), "truncated", AT, "needs 309,485,009"),
        (patched(GOOD, AT, 124, b"00000008888\0"), "bad-header", AT, "number that is none"),
        (patched(GOOD, AT, 108, b"junk"), "bad-header", AT, "a damaged header"),
        (patched(GOOD, AT, 156, b"6"), "bad-header", AT, "a fifo that claims data"),
        (patched(GOOD, AT, 156, b"M"), "unsupported", AT, "continued from another volume"),
        (cut(LONG, 600), "truncated", 0, "an extended header is cut at byte 0"),
        (cut(LONG, 1024), "truncated", 1024, "before a member"),
        (zero(LONG, 512, 1024), "bad-header", 0, "a long name that is empty"),
        (zero(LONG, 1024, 2048), "bad-header", 1024, "zeros instead of a member"),
        (flip(PAX, 512), "bad-header", 0, "a malformed pax header"),
        (cut(PAX, 1024), "truncated", 1024, "before a member"),
    ],
)
def test_damage_is_named_with_its_place(data: bytes, kind: str, offset: int, said: str) -> None:
    damage = listing_of(data).damage
    assert damage is not None
    assert (damage.kind, damage.offset) == (kind, offset)
    assert said in damage.message
    share = 100 * offset / len(data) if data else 0
    assert damage.message.endswith(f"; {share:.1f} % of the archive was readable")
    last = {0: "there is no good member", AT: f'the last good member is "{FILES[1][0]}"'}
    assert last.get(offset, "") in damage.message


def test_damage_in_an_inner_archive_has_its_place_in_the_file() -> None:
    outer = nested({"n01440764": FILES})
    start = int(listing_of(outer).offsets[0])
    damage = listing_of(flip(outer, start + AT), start, start + len(GOOD)).damage
    assert damage is not None
    assert (damage.kind, damage.offset) == ("bad-header", start + AT)
    assert f"{100 * AT / len(GOOD):.1f} % of the archive" in damage.message


@pytest.mark.parametrize("length", [0, AT, AT + 9, END, END + 512, END + 1024])
def test_an_archive_that_runs_past_its_file_is_truncated(length: int) -> None:
    listing = listing_of(cut(GOOD, length), 0, len(GOOD))
    assert listing.damage is not None
    assert listing.damage.kind == ("truncated" if length else "empty")
    missing = f"({len(GOOD) - length:,} bytes of it lie beyond the end of the file)"
    assert missing in listing.damage.message


def test_every_cut_is_an_error_or_falls_between_members() -> None:
    boundaries = [header_of(GOOD, name) for name, _ in FILES[1:]] + [END, END + BLOCK]
    for length in range(1, END + 2 * BLOCK):
        listing = listing_of(cut(GOOD, length))
        assert (listing.damage is None) == (length in boundaries or length > END + BLOCK)
        assert not listing.has_end_marker
        assert contents(listing, GOOD) == FILES[: len(listing.names)]


def hostile(kind: bytes, size: int) -> bytes:
    return patched(patched(tar([("x", b"")], end=False), 0, 124, b"%011o\0" % size), 0, 156, kind)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_a_huge_extension_is_not_read(kind: bytes) -> None:
    reader = Memory(hostile(kind, 1 << 32), 1 << 33)
    damage = list_members(reader).damage
    assert damage is not None
    assert "an extended header of 4,294,967,296 bytes" in damage.message
    assert reader.bytes_read == BLOCK


def test_a_preallocated_rest_is_a_hole_found_without_reading_it_all() -> None:
    reader = Memory(GOOD[:END], 1 << 40)
    damage = list_members(reader).damage
    assert damage is not None
    assert (damage.kind, damage.offset) == ("hole", END)
    assert reader.bytes_read < 66 << 20


def test_a_long_name_is_shortened_in_messages() -> None:
    data = tar([("x" * 1_000_000, b"1"), ("y", b"")], tar_format=tarfile.GNU_FORMAT, end=False)
    damage = listing_of(data[:-1]).damage
    assert damage is not None
    assert len(damage.message) < 500


def peak_of_listing(data: bytes) -> tuple[int, Listing]:
    tracemalloc.start()
    listing = listing_of(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, listing


def test_memory_per_member_is_its_name_and_two_numbers() -> None:
    peak, listing = peak_of_listing(tar([("n01440764_12345.JPEG", b"")], end=False) * 20_000)
    assert len(listing.names) == 20_000
    assert peak < 20_000 * 140 + (1 << 16)


def test_a_huge_global_name_is_held_once() -> None:
    payload = b"1000000 path=".ljust(999_999, b"p") + b"\n"
    peak, listing = peak_of_listing(pax_header(b"g", payload) + GOOD[:BLOCK] + bytes(BLOCK) * 3)
    one = peak
    members = tar([("a", b"")], end=False) * 500
    peak, listing = peak_of_listing(pax_header(b"g", payload) + members)
    assert len(listing.names) == 500
    assert peak < one + (1 << 20)


# Mutations. Whatever is done to one span of a good archive: damage is reported; or the list is the
# same; or the bytes are, but for padding, an honest archive of what is listed, which no reader
# could tell from a good one. Names and counts then show it. Two things go further: bytes of a name
# that change places keep the checksum, and no checksum guards a long name or a pax header. Then a
# name is listed that no member had. A name without its member, before another name, is passed
# over, as Python and GNU tar do (published archives have that).

LONG_FILES = images(4, 4, prefix="d" * 120 + "/")
ARCHIVES: dict[str, tuple[int, Files]] = {
    "v7": (V7_FORMAT, FILES),
    "ustar": (tarfile.USTAR_FORMAT, FILES),
    "gnu": (tarfile.GNU_FORMAT, LONG_FILES),
    "pax": (tarfile.PAX_FORMAT, LONG_FILES),
}
MUTATIONS = ("flip", "cut", "zero", "repeat", "drop", "swap")


def mutated(how: str, data: bytes, places: list[int], bit: int) -> bytes:
    first, second, length = places[0], places[1], places[2]
    start, end = sorted((first, second))
    changes: dict[str, Callable[[], bytes]] = {
        "flip": lambda: flip(data, min(first, len(data) - 1), bit),
        "cut": lambda: cut(data, first),
        "zero": lambda: zero(data, start, end),
        "repeat": lambda: tarmaker.repeat(data, start, end),
        "drop": lambda: tarmaker.drop(data, start, end),
        "swap": lambda: tarmaker.swap(data, first, second, length),
    }
    return changes[how]()


def places_in(data: bytes) -> st.SearchStrategy[list[int]]:
    """Three places, most of them where blocks or fields begin: that is where damage deceives."""
    blocks = st.integers(0, len(data) // BLOCK).map(lambda n: n * BLOCK)
    fields = st.builds(int.__add__, blocks, st.sampled_from([99, 124, 135, 148, 156, 257, 345]))
    anywhere = st.integers(0, len(data))
    place = st.one_of(blocks, fields, anywhere).map(lambda n: min(n, len(data)))
    return st.lists(place, min_size=3, max_size=3)


def is_honest(listing: Listing, data: bytes, start: int, end: int, tar_format: int) -> bool:
    """Whether the range is, but for padding, what an archive of the listed files must be."""
    plain = bytearray(data[start:end])
    for place, size in zip(listing.offsets.tolist(), listing.sizes.tolist(), strict=True):
        stop = place - start + size
        plain[stop : stop + -size % BLOCK] = bytes(-size % BLOCK)
    honest = tar(contents(listing, data), tar_format=tar_format, end=False)
    return plain[: len(honest)] == honest and not any(plain[len(honest) :])


def is_intact(listing: Listing, data: bytes, files: Files) -> bool:
    """Whether every listed file is one of these, byte for byte."""
    return all(found in files for found in contents(listing, data))


def judge(data: bytes, start: int, end: int, kind: str, files: Files, how: str) -> Listing:
    """Asserts what every reading of a mutated archive must be."""
    tar_format, _ = ARCHIVES[kind]
    listing = listing_of(data, start, end)
    found = list(zip(listing.names, listing.sizes.tolist(), strict=True))
    if listing.damage or found == [(name, len(content)) for name, content in files]:
        return listing
    extended = kind in ("gnu", "pax")
    renamed = set(listing.names) - {name for name, _ in files}
    assert (
        is_honest(listing, data, start, end, tar_format)
        or (renamed and (extended or how == "swap"))
        or (extended and how in ("repeat", "drop", "swap") and is_intact(listing, data, files))
    )
    assert renamed or how != "flip"
    assert how != "cut" or not listing.has_end_marker
    return listing


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("how", MUTATIONS)
def test_no_mutation_deceives(kind: str, how: str) -> None:
    tar_format, files = ARCHIVES[kind]
    good = tar(files, tar_format=tar_format)

    @settings(derandomize=True, max_examples=150, deadline=None, database=None)
    @given(places_in(good), st.integers(0, 7))
    def check(places: list[int], bit: int) -> None:
        data = mutated(how, good, places, bit)
        judge(data, 0, len(data), kind, files, how)

    check()


@pytest.mark.parametrize("how", MUTATIONS)
def test_no_mutation_of_a_train_archive_deceives(how: str) -> None:
    classes = {f"n0{n}": images(n, 3) for n in range(1440764, 1440768)}
    good = nested(classes)
    outer = [(f"{wnid}.tar", tar(files)) for wnid, files in classes.items()]

    @settings(derandomize=True, max_examples=150, deadline=None, database=None)
    @given(places_in(good), st.integers(0, 7))
    def check(places: list[int], bit: int) -> None:
        data = mutated(how, good, places, bit)
        listing = judge(data, 0, len(data), "ustar", outer, how)
        if listing.damage is None:
            offsets, sizes = listing.offsets.tolist(), listing.sizes.tolist()
            for name, offset, size in zip(listing.names, offsets, sizes, strict=True):
                if name[:-4] in classes:
                    judge(data, offset, offset + size, "ustar", classes[name[:-4]], how)

    check()
