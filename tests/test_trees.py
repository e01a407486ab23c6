"""Random trees: what is indexed is right, and what is not is accounted for."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from converter.errors import SourceError
from converter.imagenet import (
    image_name,
    label_of_wnid,
    numbered_name,
    parse_image_name,
    train_name,
    validation_labels,
    wnids,
)
from converter.index import Index
from converter.indexing import make_index
from converter.progress import Progress
from converter.sources.find import Found, find_sources
from converter.sources.reading import ImageReader, place_of
from tests.system import WINDOWS
from tests.tarmaker import tar
from tests.world import in_this_process
from tests.zipmaker import zipped

__all__ = ["in_this_process"]  # fixture

CLASSES = wnids()[:3]
FOLDERS = (*CLASSES, CLASSES[0].upper(), "train", "val", "Data", "backup", ".git", "n99999999")


def some_image(rnd: random.Random, folder: Path) -> str:
    """Returns the name of an image that may or may not belong into a folder."""
    number = rnd.randint(1, 40)
    wnid = folder.name.lower() if folder.name.lower() in CLASSES else rnd.choice(CLASSES)
    if rnd.random() < 0.05:
        wnid = CLASSES[1]
    name = train_name(wnid, number)
    if rnd.random() < 0.3:
        name = numbered_name(rnd.choice(["validation", "test"]), number)
    return name.replace(".JPEG", ".jpg") if rnd.random() < 0.2 else name


def grow(folder: Path, rnd: random.Random, depth: int = 0) -> None:
    """Fills a folder with what people have, and with what nobody should have."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(rnd.randint(0, 4)):
        path = folder / some_image(rnd, folder)
        path.write_bytes(path.stem.encode())  # the same image has the same bytes
    if rnd.random() < 0.3:
        (folder / rnd.choice(["a.txt", "cat.jpg", "18.JPEG", "._x", "empty.zip"])).write_bytes(b"x")
    if rnd.random() < 0.15:
        wnid = rnd.choice(CLASSES)
        members = [(train_name(wnid, n), train_name(wnid, n)[:-5].encode()) for n in (50, 51)]
        name, data = rnd.choice(
            [(f"{wnid}.tar", tar(members)), ("a.zip", zipped(members)), ("b.tar", tar(members))]
        )
        (folder / name).write_bytes(data)
    for name in rnd.sample(FOLDERS, rnd.randint(0, 3) if depth < 3 else 0):
        if not (folder / name).exists():
            grow(folder / name, rnd, depth + 1)
    if rnd.random() < 0.2 and not WINDOWS:
        link = folder / rnd.choice([*FOLDERS, "loop"])
        if not os.path.lexists(link):
            link.symlink_to(rnd.choice([".", "..", "loop", "train", "nowhere"]))


@pytest.mark.parametrize("seed", range(60))
def test_a_random_tree(tmp_path: Path, seed: int) -> None:
    grow(tmp_path / "top", random.Random(seed))
    try:
        found = find_sources([tmp_path / "top"], tmp_path, None)
        index = make_index(found.parts, None, (), 1, Progress())
    except SourceError:
        return
    read = paths_read(index)
    accounted = [place for finding in index.findings for place in finding.places]
    for path in sorted((tmp_path / "top").rglob("*")):
        image = parse_image_name(path.name)
        if image and path.is_file() and str(path.resolve()) not in read:
            assert is_accounted_for(path, accounted, found), path


def paths_read(index: Index) -> set[str]:
    """Reads every image of the index; its name, its label and its bytes have to agree."""
    paths = set()
    with closing(ImageReader(index.files)) as reader:
        for split, rows in index.splits.items():
            for label, number, file, offset, size in rows.tolist():
                name = image_name(split, label, number)
                data = reader.read(file, name, offset, size)
                assert data == name[:-5].encode()
                image = parse_image_name(name)
                assert image is not None
                if image.wnid:
                    assert label == label_of_wnid()[image.wnid]
                elif split == "validation":
                    assert label == validation_labels()[number - 1]
                paths.add(os.path.realpath(place_of(index.files[file], name, offset)[0]))
    return paths


def is_accounted_for(path: Path, accounted: list[str], found: Found) -> bool:
    """Returns whether a finding names an image or a folder around it, or a verdict does."""
    around = {str(place) for place in (path, *path.parents)}
    unused = {verdict.path for verdict in found.verdicts if verdict.source is None}
    return bool(around & unused) or any(
        str(path) in place or place.split(": ")[0] in around for place in accounted
    )
