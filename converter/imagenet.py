"""Facts about ImageNet 2012 (ILSVRC2012): names, labels, counts, official archives.

Labels come from the files that the installed TFDS ships; they are read without importing it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from converter.errors import ConversionError

DATASET: Final = "imagenet2012"
SPLITS: Final = ("train", "validation", "test")
EXPECTED_SPLITS: Final = ("train", "validation")
CLASSES: Final = 1000
EXAMPLES: Final = {"train": 1_281_167, "validation": 50_000, "test": 100_000}

PUBLISHED_NUM_BYTES: Final = {"train": 146_999_114_192, "validation": 6_711_099_535}
"""numBytes that TFDS publishes for the complete dataset, version 5.1.0, by split."""

NO_LABEL: Final = -1
"""The label of every test example, as TFDS writes it."""

LARGEST_IMAGE_BYTES: Final = 64 << 20
"""More than four times the largest official image (15 MB); anything above is no image of it."""

CMYK_IMAGES: Final = frozenset(
    {
        "n01739381_1309.JPEG",
        "n02077923_14822.JPEG",
        "n02447366_23489.JPEG",
        "n02492035_15739.JPEG",
        "n02747177_10752.JPEG",
        "n03018349_4028.JPEG",
        "n03062245_4620.JPEG",
        "n03347037_9675.JPEG",
        "n03467068_12171.JPEG",
        "n03529860_11437.JPEG",
        "n03544143_17228.JPEG",
        "n03633091_5218.JPEG",
        "n03710637_5125.JPEG",
        "n03961711_5286.JPEG",
        "n04033995_2932.JPEG",
        "n04258138_17003.JPEG",
        "n04264628_27969.JPEG",
        "n04336792_7448.JPEG",
        "n04371774_5854.JPEG",
        "n04596742_4225.JPEG",
        "n07583066_647.JPEG",
        "n13037406_4650.JPEG",
    }
)
"""Train images that TFDS re-encodes from CMYK to RGB (its imagenet2012 builder)."""

PNG_IMAGES: Final = frozenset({"n02105855_2933.JPEG"})
"""Train images that TFDS re-encodes from PNG to JPEG (its imagenet2012 builder)."""


@dataclass(frozen=True)
class OfficialArchive:
    """An archive as image-net.org publishes it.

    Attributes:
        name: the file's name.
        split: the split that it holds.
        size: its length in bytes, None where that is not confirmed.
        md5: its published MD5 digest, lower-case hexadecimal.
        sha256: its SHA-256 digest, None where that is not known.
    """

    name: str
    split: str
    size: int | None
    md5: str
    sha256: str | None


OFFICIAL_ARCHIVES: Final = (
    OfficialArchive(
        "ILSVRC2012_img_train.tar",
        "train",
        147_897_477_120,
        "1d675b47d978889d74fa0da5fadfb00e",
        "b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb",
    ),
    OfficialArchive(
        "ILSVRC2012_img_val.tar",
        "validation",
        6_744_924_160,
        "29b22e2961454d5413ddabcf34fc5622",
        "c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0",
    ),
    OfficialArchive(
        "ILSVRC2012_img_test_v10102019.tar",
        "test",
        None,
        "e1b8681fff3d63731c599df9b4b6fc02",
        "9cf7f8249639510f17d3d8a0deb47cd22a435886ba8e29e2b3223e65a4079eb4",
    ),
    OfficialArchive(
        "ILSVRC2012_img_test.tar", "test", None, "fe64ceb247e473635708aed23ab6d839", None
    ),
)
"""In the order of preference where a folder holds several archives of one split."""

_FLAGS = re.IGNORECASE | re.ASCII
_TRAIN_NAME = re.compile(r"(n\d{8})_(\d{1,9})\.jpe?g", _FLAGS)
_NUMBERED_NAME = re.compile(r"ILSVRC2012_(val|test)_(\d{8})\.jpe?g", _FLAGS)
_WNID = re.compile(r"n\d{8}", _FLAGS)


@dataclass(frozen=True)
class ImageName:
    """What an image's base name says about it.

    Attributes:
        split: train, validation or test.
        wnid: the class in a train image's name, None in the other splits.
        number: the trailing number of the name.
        canonical: the official spelling, which is what TFDS stores as file_name.
    """

    split: str
    wnid: str | None
    number: int
    canonical: str


def parse_image_name(name: str) -> ImageName | None:
    """Returns what a base name says, or None where it is no ILSVRC2012 image name.

    Upper or lower case and `.jpg` for `.JPEG` are accepted, since they name one image only;
    another count of digits in a validation or test name is not.
    """
    if match := _TRAIN_NAME.fullmatch(name):
        wnid, digits = match[1].lower(), match[2]
        if digits != str(int(digits)):
            return None
        return ImageName("train", wnid, int(digits), train_name(wnid, int(digits)))
    if match := _NUMBERED_NAME.fullmatch(name):
        split = "validation" if match[1].lower() == "val" else "test"
        number = int(match[2])
        return ImageName(split, None, number, numbered_name(split, number))
    return None


def split_of(canonical: str) -> str:
    """Returns the split of an image by its official name."""
    if canonical.startswith("ILSVRC2012_"):
        return "validation" if canonical.startswith("ILSVRC2012_val_") else "test"
    return "train"


def parse_wnid(name: str) -> str | None:
    """Returns the wnid that a folder's or class tar's base name spells, else None."""
    stem = name[:-4] if name.lower().endswith(".tar") else name
    return stem.lower() if _WNID.fullmatch(stem) else None


def train_name(wnid: str, number: int) -> str:
    """Returns the official name of a train image."""
    return f"{wnid}_{number}.JPEG"


def numbered_name(split: str, number: int) -> str:
    """Returns the official name of a validation or test image."""
    return f"ILSVRC2012_{'val' if split == 'validation' else 'test'}_{number:08d}.JPEG"


def image_name(split: str, label: int, number: int) -> str:
    """Returns the official name of an image, which TFDS also uses as the record's key."""
    return train_name(wnids()[label], number) if split == "train" else numbered_name(split, number)


@functools.cache
def wnids() -> tuple[str, ...]:
    """Returns the 1,000 wnids; a class's label is its position here.

    Raises:
        ConversionError: tensorflow-datasets is not installed or lacks the file.
    """
    return _labels_file("labels.txt", CLASSES)


@functools.cache
def label_of_wnid() -> dict[str, int]:
    """Returns the label of each wnid."""
    return {wnid: label for label, wnid in enumerate(wnids())}


@functools.cache
def validation_labels() -> tuple[int, ...]:
    """Returns the labels of validation images; that of number N stands at N - 1.

    Raises:
        ConversionError: tensorflow-datasets is not installed or lacks the file.
    """
    labels = label_of_wnid()
    return tuple(
        labels[wnid] for wnid in _labels_file("validation_labels.txt", EXAMPLES["validation"])
    )


def _labels_file(name: str, lines: int) -> tuple[str, ...]:
    spec = importlib.util.find_spec("tensorflow_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise ConversionError("tensorflow-datasets is not installed: pip install it")
    path = Path(spec.submodule_search_locations[0], "datasets", DATASET, name)
    try:
        labels = tuple(path.read_text(encoding="ascii").split())
    except OSError as error:
        raise ConversionError(f"cannot read the labels that TFDS ships: {error}") from error
    if len(labels) != lines:
        raise ConversionError(f"{path} holds {len(labels)} labels where {lines} belong")
    return labels
