"""A small ImageNet that tests lay out in all ways, and what the command makes of it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from converter.cli import app
from converter.imagenet import numbered_name, train_name, validation_labels, wnids
from converter.records import parse_example, read_payloads
from tests.tarmaker import Members, nested, tar


def jpeg(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (8, 8), shade % 256).save(buffer, "JPEG")
    return buffer.getvalue()


CLASSES = wnids()[:3]
TRAIN = {wnid: [(train_name(wnid, n), jpeg(n)) for n in (3, 14, 159)] for wnid in CLASSES}
VAL = [(numbered_name("validation", n), jpeg(n)) for n in range(1, 13)]
TEST = [(numbered_name("test", n), jpeg(n)) for n in range(1, 5)]
INCOMPLETE = "--allow-incomplete"
MIDDLE = numbered_name("validation", 6)


def write(folder: Path, members: Members) -> Path:
    """Writes files below a folder, by their relative names; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in members:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def in_class_folders(classes: Mapping[str, Members], prefix: str = "") -> list[tuple[str, bytes]]:
    """Returns the images as a tree of class folders has them."""
    return [
        (f"{prefix}{wnid}/{name}", data)
        for wnid, images in classes.items()
        for name, data in images
    ]


def sorted_val(prefix: str = "") -> list[tuple[str, bytes]]:
    """Returns the validation images in class folders, as many scripts leave them."""
    labels = validation_labels()
    return [(f"{prefix}{wnids()[labels[int(n[-13:-5]) - 1]]}/{n}", data) for n, data in VAL]


def kaggle(test: bool = True) -> list[tuple[str, bytes]]:
    """Returns the files of Kaggle's tree."""
    top = "ILSVRC/Data/CLS-LOC/"
    return [
        ("ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml", b"<annotation/>"),
        ("ILSVRC/ImageSets/CLS-LOC/val.txt", b"ILSVRC2012_val_00000001 1\n"),
        *((f"{top}test/{name}", data) for name, data in (TEST if test else [])),
        *in_class_folders(TRAIN, f"{top}train/"),
        *((f"{top}val/{name}", data) for name, data in VAL),
        ("LOC_synset_mapping.txt", b"n01440764 tench\n"),
    ]


class World:
    """A folder with archives, and what the command makes of it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.out = folder / "source", folder / "out"
        self.source.mkdir()
        self.put(train=nested(TRAIN), val=tar(VAL))

    def put(self, **archives: bytes) -> None:
        for name, data in archives.items():
            (self.source / f"ILSVRC2012_img_{name}.tar").write_bytes(data)

    def empty(self) -> Path:
        """Removes the archives; returns the folder for another layout."""
        for path in self.source.iterdir():
            path.unlink()
        return self.source

    def run(self, *options: str, sources: Sequence[Path] = ()) -> tuple[int, str]:
        named = [text for path in sources or [self.source] for text in ("--source", str(path))]
        arguments = [*named, "--out", self.out, "--workers", "1", *options]
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exit_code == 0:
            assert self.final.exists()
        else:
            assert not self.final.exists()
            assert "Traceback" not in result.output
        return result.exit_code, result.output

    @property
    def final(self) -> Path:
        return self.out / "imagenet2012" / "5.1.0"

    @property
    def sums(self) -> str:
        return (self.final / "SHA256SUMS").read_text(encoding="ascii")

    def records(self, split: str) -> dict[str, tuple[int, bytes]]:
        found = {}
        for path in self.final.glob(f"imagenet2012-{split}.*"):
            with open(path, "rb") as file:
                for record in map(parse_example, read_payloads(file)):
                    found[record.file_name.decode()] = (record.label, record.image)
        return found

    def assert_right(self, val: Members = VAL, train: bool = True) -> None:
        labels = validation_labels()
        assert self.records("validation") == {
            name: (labels[int(name[-13:-5]) - 1], data) for name, data in val
        }
        if train:
            assert self.records("train") == {
                name: (label, data)
                for label, wnid in enumerate(CLASSES)
                for name, data in TRAIN[wnid]
            }


def stay_in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Runs all tasks here, one after another."""
    patch.setattr("converter.pool.run", lambda run, tasks, workers: map(run, tasks))
    patch.setattr("converter.pool.start", lambda get_ready, workers: None)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting processes for each of so many cases would take minutes; others test with them."""
    stay_in_this_process(monkeypatch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
