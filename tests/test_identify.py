"""What is this file? Each wrong one is named for what it is, with what to do."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter import checksum
from converter.cli import app
from converter.imagenet import OfficialArchive, numbered_name, train_name, wnids
from tests.tarmaker import nested, tar
from tests.world import INCOMPLETE, VAL, World, in_this_process, jpeg, world

__all__ = ["in_this_process", "world"]  # fixtures


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.JPEG", b"x")
    return buffer.getvalue()


GOOD = tar(VAL)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (bytes(5000), "it begins with zeros"),
        (b"<!DOCTYPE html><html>Please log in</html>" * 50, "it is a web page"),
        (b"\n <HTML><body>404</body></HTML>", "it is a web page"),
        (
            gzip.compress(b"text", mtime=0),
            "compressed with gzip, and its members (none that a tar has)",
        ),
        (bz2.compress(tar([("a/1.txt", b"x")])), "bzip2, and its members (such as a/1.txt) are"),
        (
            lzma.compress(GOOD)[:60],
            "xz, but the xz data is cut: it ends at byte 60",
        ),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "compressed with zstd"),
        (zipped(), "it is a zip file"),
        (jpeg(3), "it is a single JPEG image"),
        (b"nothing known " * 100, "it is no tar"),
        (tar([("ILSVRC2012_devkit_t12/readme.txt", b"x")]), "a development kit without images"),
        (tar([("val/ILSVRC2012_val_00000001.xml", b"x")]), "it holds bounding boxes"),
        (tar([("holiday/1.txt", b"x")]), "members (such as holiday/1.txt) are not those"),
    ],
)
def test_wrong_files_under_the_official_name(world: World, data: bytes, said: str) -> None:
    world.put(val=data)
    for options in ((), (INCOMPLETE, "--splits", "validation")):
        code, output = world.run(*options)
        assert code == 3
        assert said in output
        assert "is not what its name says" in output
        assert "6,744,924,160" in output
        assert not world.out.exists()
    (world.source / "ILSVRC2012_img_val.tar").rename(world.source / "mine.tar")
    result = CliRunner().invoke(app, ["--source", str(world.source / "mine.tar")])
    assert result.exit_code == 3
    assert said in result.output


def test_unfinished_downloads_are_named(world: World) -> None:
    for path in world.source.iterdir():
        path.rename(path.with_name(path.name + ".part"))
    (world.source / "ILSVRC2012_img_val.tar.part").write_bytes(bytes(67_449_242))
    code, output = world.run()
    assert code == 3
    assert "There are unfinished downloads: ILSVRC2012_img_train.tar.part" in output
    assert "ILSVRC2012_img_val.tar.part (67,449,242 bytes, 1.0 %)" in output


def test_a_partial_archive_is_explained_by_its_size(world: World) -> None:
    (world.source / "ILSVRC2012_img_val.tar.aria2").write_bytes(b"x")
    world.put(val=GOOD[:3000])
    code, output = world.run(INCOMPLETE)
    assert code == 3
    said = world.run()[1]
    assert "has 3,000 bytes, the official ILSVRC2012_img_val.tar 6,744,924,160 (0.0 %)" in said
    assert "ILSVRC2012_img_val.tar.aria2 says its download goes on" in said
    assert "truncated" not in output or "damaged archive" in output


def test_task_3_and_other_releases(world: World) -> None:
    dogs = {w: [(train_name(w, 1), jpeg(1))] for w in wnids()[151:269]}
    world.put(train=nested(dogs))
    code, output = world.run("--splits", "train")
    assert code == 3
    assert "this is the archive of Task 3" in output
    whole = {f"n{n:08d}": [(f"n{n:08d}_1.JPEG", jpeg(1))] for n in range(4475, 4600)}
    world.put(train=nested(whole))
    code, output = world.run("--splits", "train", INCOMPLETE)
    assert code == 3
    assert "this is not ILSVRC2012: 125 classes" in output
    assert "fall11 or winter21" in output


def test_checksums(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    val = OfficialArchive("V.tar", "validation", None, "", hashlib.sha256(GOOD).hexdigest())
    monkeypatch.setattr(checksum, "OFFICIAL_ARCHIVES", (val,))
    code, output = world.run(INCOMPLETE, "--checksum")
    assert code == 0
    assert "the official V.tar, byte for byte" in output
    assert "is not that of an official archive" in output
    report = json.loads((world.final / "conversion_report.json").read_text(encoding="ascii"))
    found = {Path(entry["path"]).name: entry["official"] for entry in report["checksums"]}
    assert found == {"ILSVRC2012_img_train.tar": None, "ILSVRC2012_img_val.tar": "V.tar"}


def test_inspect(world: World) -> None:
    world.put(val=tar([*VAL, ("AAA.txt", b"x"), (numbered_name("validation", 60_000), b"x")]))
    before = sorted(world.source.parent.rglob("*"))
    arguments = ["inspect", "--source", str(world.source), "--out", str(world.out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3
    assert "validation          12     50,000" in result.stdout
    assert "Never converted:" in result.stdout
    assert "60000.JPEG at byte" in result.stdout
    assert "Converted with --allow-incomplete only:" in result.stdout
    plain = CliRunner().invoke(app, [*arguments, "--json"])
    assert plain.exit_code == 3
    found = json.loads(plain.stdout)
    assert found["sound"] is False
    assert found["splits"]["validation"]["images"] == 12
    kinds = {finding["kind"]: finding["severity"] for finding in found["findings"]}
    assert kinds["number-out-of-range"] == "refuse"
    assert kinds["missing-images"] == "missing"
    assert kinds["junk"] == "note"
    assert sorted(world.source.parent.rglob("*")) == before
