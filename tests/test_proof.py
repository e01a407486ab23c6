"""`--validate digest`: a proven archive is not decoded, any other one is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from converter import proof
from converter.errors import SourceReadError
from converter.imagenet import OfficialArchive
from tests.tarmaker import flip, header_of, nested, patched, tar
from tests.world import INCOMPLETE, TRAIN, VAL, World, stay_in_this_process

GOOD = tar(VAL)
BROKEN = tar([(VAL[0][0], b"\xff\xd8\xff no image"), *VAL[1:]])
DIGEST = ("--validate", "digest", INCOMPLETE)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    stay_in_this_process(monkeypatch)
    return World(tmp_path)


def register(monkeypatch: pytest.MonkeyPatch, **archives: bytes) -> None:
    """Makes these the official archives."""
    monkeypatch.setattr(
        proof,
        "OFFICIAL_ARCHIVES",
        [
            OfficialArchive(
                f"ILSVRC2012_img_{name}.tar",
                {"val": "validation"}.get(name, name),
                len(data),
                "",
                hashlib.sha256(data).hexdigest(),
            )
            for name, data in archives.items()
        ],
    )


def report(world: World) -> str:
    return (world.final / "conversion_report.json").read_text(encoding="ascii")


def test_a_match_proves_every_image_and_none_is_decoded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(val=BROKEN)  # which a decoder would refuse, and the digest does not
    register(monkeypatch, train=nested(TRAIN), val=BROKEN)
    code, output = world.run(*DIGEST)
    assert code == 0
    assert "ILSVRC2012_img_val.tar: the official ILSVRC2012_img_val.tar, byte for byte" in output
    assert "decoded instead" not in output
    assert '"validate": "digest"' in report(world)


def test_another_size_is_decoded_from_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(val=BROKEN)
    register(monkeypatch, train=nested(TRAIN), val=BROKEN + bytes(512))
    code, output = world.run(*DIGEST)
    assert code == 5
    assert "img_val.tar has not the size of an official archive: every image of the val" in output
    assert f"{VAL[0][0]}" in output


def test_a_mismatch_is_decoded_after_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, train=nested(TRAIN), val=GOOD)
    name = VAL[3][0]
    at = header_of(GOOD, name) + 512
    world.put(val=flip(GOOD, at, 3))  # the first byte of an image
    code, output = world.run(*DIGEST)
    assert code == 5
    assert "img_val.tar is not the official ILSVRC2012_img_val.tar, byte for byte" in output
    assert "every image of the validation split is decoded instead" in output
    assert name in output
    code, output = world.run(*DIGEST, "--on-corrupt", "skip")
    assert code == 0
    assert "Corrupt images (skip): 1" in output
    assert "img_train.tar: the official ILSVRC2012_img_train.tar, byte for byte" in output


def test_a_harmless_difference_gives_the_same_dataset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, train=nested(TRAIN), val=GOOD)
    assert world.run(*DIGEST)[0] == 0
    wanted = (world.final / "SHA256SUMS").read_bytes()
    world.put(val=patched(GOOD, header_of(GOOD, VAL[0][0]), 108, b"0001750\0"))  # another owner
    code, output = world.run(*DIGEST, "--restart")
    assert code == 0
    assert output.count("decoded instead") == 1
    assert (world.final / "SHA256SUMS").read_bytes() == wanted


def test_an_archive_that_cannot_be_read_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, train=nested(TRAIN), val=GOOD)

    def fail(path: str, stop: object) -> str:
        raise SourceReadError(f"cannot read {path}")

    monkeypatch.setattr(proof, "_sha256", fail)
    code, output = world.run(*DIGEST)
    assert code == 3
    assert "cannot read" in output
