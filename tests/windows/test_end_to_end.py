r"""The whole way on Windows: archives in C:\Downloads, the command, `tfds.load`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from converter.records import parse_example, read_payloads
from tests.windows.conftest import MIXED, Archives
from tests.windows.machine import Machine

LOAD = r"""
import json, sys
import tensorflow_datasets as tfds
seen = {}
for split in ("train", "validation", "test"):
    loaded = tfds.load("imagenet2012", data_dir="C:\\Datasets", split=split)
    seen[split] = [
        (e["file_name"].decode(), int(e["label"]), list(e["image"].shape))
        for e in loaded.as_numpy_iterator()
    ]
print(json.dumps(seen))
"""


def sums_of(out: Path) -> bytes:
    return (out / "imagenet2012" / "5.1.0" / "SHA256SUMS").read_bytes()


@pytest.fixture(scope="module")
def converted(machine: Machine, mixed: Archives) -> Path:
    """The README's line, to the letter but for the miniature archives."""
    shutil.rmtree(machine.folder("Downloads"))
    shutil.copytree(mixed.folder, machine.c / "Downloads")
    shutil.rmtree(machine.folder("Datasets"))
    line = r"imagenet-convert --source C:\Downloads --workers 2 --out C:\Datasets"
    done = machine.batch(f"{line} --allow-incomplete", timeout=300)
    assert done.code == 0, done.said
    assert r"tfds.load('imagenet2012', data_dir='C:\\Datasets')" in done.said
    return machine.c / "Datasets"


def test_the_bytes_are_those_of_linux(converted: Path, mixed: Archives) -> None:
    assert sums_of(converted) == mixed.sums
    assert [path.name for path in (converted / "imagenet2012").iterdir()] == ["5.1.0"]


def test_tfds_loads_it(machine: Machine, converted: Path) -> None:
    done = machine.run(machine.python, "-c", LOAD, timeout=280)
    assert done.code == 0, done.err[-3000:]
    seen = json.loads(done.out.splitlines()[-1])
    assert {split: len(examples) for split, examples in seen.items()} == {
        "train": MIXED.classes,
        "validation": MIXED.validation,
        "test": MIXED.test,
    }
    for split, examples in seen.items():
        written = {}
        for path in (converted / "imagenet2012" / "5.1.0").glob(f"imagenet2012-{split}.*"):
            with open(path, "rb") as file:
                for record in map(parse_example, read_payloads(file)):
                    written[record.file_name.decode()] = record.label
        assert {name: label for name, label, _ in examples} == written
        assert all(shape[2] == 3 for _, _, shape in examples)


def test_verify_says_that_it_is_sound(machine: Machine, converted: Path) -> None:
    done = machine.batch(r"imagenet-convert verify C:\Datasets --decode")
    assert done.code == 0, done.said


def test_a_dry_run_and_a_second_run(machine: Machine, converted: Path, mixed: Archives) -> None:
    line = r"imagenet-convert --source C:\Downloads --out C:\Datasets --allow-incomplete"
    again = machine.batch(line)
    assert again.code == 4
    assert r"C:\Datasets\imagenet2012\5.1.0 exists already" in again.said
    dry = machine.batch(f"{line} --dry-run --restart")
    assert dry.code == 0, dry.said
    assert sums_of(converted) == mixed.sums


def test_archives_in_the_manual_folder_need_no_source(machine: Machine, plain: Archives) -> None:
    out = machine.folder("Datasets2")
    shutil.copytree(plain.folder, out / "downloads" / "manual")
    done = machine.batch(
        r"imagenet-convert --workers 2 --out C:\Datasets2 --allow-incomplete",
        "exit /b %errorlevel%",
    )
    assert done.code == 0, done.said
    assert sums_of(out) == plain.sums
