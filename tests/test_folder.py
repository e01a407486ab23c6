"""Folders of images: listing, changes, permissions, many files, few open ones."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SourceChangedError, SourceReadError
from converter.imagenet import numbered_name, parse_image_name, train_name, validation_labels, wnids
from converter.images import validate
from converter.index import build_index
from converter.indexing import make_index
from converter.progress import Progress
from converter.scan import scan_part
from converter.sources.base import FOLDER, Part, SourceFile
from converter.sources.find import find_sources
from converter.sources.folder import OpenFolder, respelled, spelling_of, survey
from converter.sources.reading import ImageReader
from tests.system import WINDOWS, not_on_windows
from tests.tarmaker import tar
from tests.world import (
    CLASSES,
    INCOMPLETE,
    TRAIN,
    VAL,
    World,
    in_class_folders,
    in_this_process,
    jpeg,
    world,
    write,
)

__all__ = ["in_this_process", "world"]  # fixtures


def tree(world: World) -> Path:
    """Lays the images out in folders."""
    source = world.empty()
    write(source, [*in_class_folders(TRAIN, "train/"), *((f"val/{n}", d) for n, d in VAL)])
    return source


@given(
    split=st.sampled_from(["train", "validation", "test"]),
    number=st.integers(1, 99_999),
    case=st.sampled_from([str, str.lower, str.upper]),
    suffix=st.sampled_from([".JPEG", ".jpeg", ".jpg", ".JPG", ".Jpg"]),
)
def test_a_spelling_is_remembered_once_for_a_folder(
    split: str, number: int, case: Any, suffix: str
) -> None:
    name = train_name(wnids()[7], number) if split == "train" else numbered_name(split, number)
    actual = case(name[:-5]) + suffix
    image = parse_image_name(actual)
    assert image is not None
    spelling = spelling_of(image.canonical, actual)
    assert spelling is not None
    assert respelled(image.canonical, spelling) == actual
    assert (spelling == "") == (actual == name)


def test_an_odd_spelling_has_a_file_of_its_own() -> None:
    assert spelling_of("ILSVRC2012_val_00000001.JPEG", "IlSvRc2012_val_00000001.JPEG") is None


@not_on_windows("links need a privilege, and a folder has no pipes")
def test_a_listing(tmp_path: Path) -> None:
    write(tmp_path, [("b.JPEG", b"12"), ("a.JPEG", b"1"), ("sub/c.JPEG", b"123")])
    os.utime(tmp_path / "a.JPEG", ns=(1, 1_234_567_890_123_456_789))
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "self").symlink_to("self")
    os.mkfifo(tmp_path / "pipe")
    listing = OpenFolder(Part(str(tmp_path), kind=FOLDER)).listing()
    assert listing.names == ["a.JPEG", "b.JPEG"]
    assert listing.sizes.tolist() == [1, 2]
    assert listing.offsets[0] == 1_234_567_890_123_456_789
    assert [(other.name, other.kind) for other in listing.others] == [
        ("gone", "a link that leads nowhere"),
        ("pipe", "no regular file"),
        ("self", "a link that leads nowhere"),
        ("sub", "folder"),
    ]
    assert survey(tmp_path).others == 6  # nothing here is named as in ImageNet


class Entries:
    """Stands for os.scandir below a folder: refuses some, and counts the looks at files."""

    def __init__(self, root: Path, *refused: Path) -> None:
        self.root = str(root)
        self.refused = {str(path) for path in refused}
        self.stats = 0
        self._real = os.scandir

    def __call__(self, path: Any = ".") -> Any:
        if not str(path).startswith(self.root):
            return self._real(path)
        if str(path) in self.refused:
            raise PermissionError(13, "Permission denied", str(path))
        self._scan = self._real(path)
        return self

    def __enter__(self) -> Iterator[Any]:
        return (Counted(entry, self) for entry in self._scan)

    def __exit__(self, *_: object) -> None:
        self._scan.close()


class Counted:
    """An entry whose `stat` is counted."""

    def __init__(self, entry: os.DirEntry[str], counter: Entries) -> None:
        self.name, self._entry, self._counter = entry.name, entry, counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def stat(self) -> os.stat_result:
        self._counter.stats += 1
        return self._entry.stat()


def test_folders_that_may_not_be_looked_into_are_all_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tree(world)
    refused = [source / "train" / wnid for wnid in CLASSES[1:]]
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", Entries(source, *refused))
        code, said = world.run(INCOMPLETE)
    assert code == 3
    assert "2 folders that cannot be looked into" in said
    for path in refused:
        assert f"cannot look into {path}: Permission denied" in said
    assert not world.out.exists()
    monkeypatch.setattr(os, "scandir", Entries(source, source / "val"))
    code, said = world.run(INCOMPLETE)
    assert code == 3
    assert f"cannot look into {source / 'val'}: Permission denied" in said


def test_a_hundred_thousand_files_cost_one_look_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2_000 if WINDOWS else 100_000
    for number in range(1, count + 1):
        os.close(os.open(tmp_path / numbered_name("test", number), os.O_CREAT | os.O_WRONLY))
    entries = Entries(tmp_path)
    monkeypatch.setattr(os, "scandir", entries)
    began = time.monotonic()
    found = find_sources([tmp_path], tmp_path, None)
    assert entries.stats == 0
    (part,) = found.parts
    scan = scan_part(part)
    seconds = time.monotonic() - began
    assert entries.stats == (0 if WINDOWS else count)  # there os.stat looks, see status_of
    assert len(scan.rows["test"]) == count
    assert scan.files == (SourceFile(str(tmp_path), 0, 0, FOLDER),)
    assert scan.rows["test"].nbytes + 200 * len(scan.files) < 30 * count
    assert seconds < 60
    monkeypatch.undo()
    shutil.rmtree(tmp_path)


@not_on_windows("nothing counts the open files")
def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    data = [b"image %d" % n for n in range(200)]
    for number, image in enumerate(data):
        (tmp_path / f"{number}.tar").write_bytes(image)
    files = [SourceFile.of(str(tmp_path / f"{n}.tar")) for n in range(100)]
    write(tmp_path / "n", [(train_name(CLASSES[0], n), image) for n, image in enumerate(data)])
    files.append(SourceFile(str(tmp_path / "n"), 0, 0, FOLDER))
    before = len(os.listdir("/proc/self/fd"))
    with closing(ImageReader(files)) as reader:
        for number in range(100):
            reader.will_need(number, "", 0, 5)
            assert reader.read(number, "", 0, len(data[number])) == data[number]
        for number, image in enumerate(data):
            name = train_name(CLASSES[0], number)
            changed = (tmp_path / "n" / name).stat().st_mtime_ns
            reader.will_need(100, name, changed, len(image))
            assert reader.read(100, name, changed, len(image)) == image
            assert len(os.listdir("/proc/self/fd")) <= before + 25
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_rewritten_image_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    name = train_name(CLASSES[0], 1)
    path = write(tmp_path, [(name, b"before")]) / name
    changed = path.stat().st_mtime_ns
    with closing(ImageReader([SourceFile(str(tmp_path), 0, 0, FOLDER)])) as reader:
        assert reader.read(0, name, changed, 6) == b"before"
        os.utime(path, ns=(0, changed + 1000))
        with pytest.raises(SourceChangedError, match="changed while it was converted"):
            reader.read(0, name, changed, 6)
        path.write_bytes(b"after it")
        os.utime(path, ns=(0, changed))
        with pytest.raises(SourceChangedError, match="size 6 to 8"):
            reader.read(0, name, changed, 6)
        path.unlink()
        with pytest.raises(SourceReadError, match="was indexed and is now gone"):
            reader.read(0, name, changed, 6)


def stop_after(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    """Ends the conversion when so many images were validated, as Ctrl-C does."""
    real, count = validate, 0

    def counted(data: bytes, level: str) -> Any:
        nonlocal count
        count += 1
        if count > images:
            raise SourceReadError("the disk is gone")
        return real(data, level)

    monkeypatch.setattr("converter.shards.validate", counted)


def interrupted(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leaves a conversion from folders half done: the train split is written."""
    source = tree(world)
    with monkeypatch.context() as patch:
        stop_after(patch, 12)
        code, said = world.run(INCOMPLETE)
        assert (code, "the disk is gone" in said) == (3, True)
    return source


def test_an_unchanged_folder_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    source = interrupted(world, monkeypatch)
    write(source / "train", [(".DS_Store", b"x"), ("notes.txt", b"x")])  # no images: harmless
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    assert "9 kept from earlier runs" in said
    world.assert_right()


@pytest.mark.parametrize("change", ["added", "removed", "rewritten", "touched"])
def test_a_changed_folder_is_noticed_on_resuming(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source = interrupted(world, monkeypatch)
    image = source / "train" / CLASSES[1] / TRAIN[CLASSES[1]][0][0]
    if change == "added":
        write(image.parent, [(train_name(CLASSES[1], 8), jpeg(8))])
    elif change == "removed":
        image.unlink()
    elif change == "rewritten":
        image.write_bytes(jpeg(200))
    else:
        os.utime(image, ns=(1, 1))
    code, said = world.run(INCOMPLETE)
    assert code == 4
    assert "another set of images (some were added, removed or rewritten)" in said
    code, said = world.run(INCOMPLETE, "--restart")
    assert code == 0, said


def test_a_tar_that_changes_while_it_is_indexed(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar(VAL[:6]))
    scans = [(Part(str(path)), scan_part(Part(str(path))))]
    path.write_bytes(tar(VAL[6:]))
    scans.append((Part(str(path), "x", 1), scan_part(Part(str(path)))))
    with pytest.raises(SourceChangedError, match="changed while it was indexed"):
        build_index(scans, None, ())


@not_on_windows("links need a privilege")
def test_a_folder_under_two_names_is_read_once(tmp_path: Path) -> None:
    source = write(tmp_path / "a", VAL)
    (tmp_path / "b").symlink_to("a")
    parts = [Part(str(tmp_path / name), kind=FOLDER) for name in "ba"]
    index = make_index(parts, None, (), 1, Progress())
    assert [file.path for file in index.files] == [str(source)]
    assert len(index.splits["validation"]) == len(VAL)
    (noted,) = [finding for finding in index.findings if finding.kind == "read-once"]
    assert noted.places == (str(tmp_path / "b"),)


def test_labels_of_sorted_validation_come_from_the_numbers(world: World) -> None:
    labels = validation_labels()
    source = world.empty()
    write(source, in_class_folders(TRAIN))
    for name, data in VAL:
        write(source / "val" / wnids()[labels[int(name[-13:-5]) - 1]], [(name, data)])
    code, said = world.run(INCOMPLETE)
    assert code == 0, said
    world.assert_right()
