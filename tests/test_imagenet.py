"""Facts about ImageNet, against what TFDS ships."""

from __future__ import annotations

import pytest
from tensorflow_datasets.datasets.imagenet2012 import imagenet2012_dataset_builder as tfds_builder

from converter.class_counts import train_images
from converter.imagenet import (
    CMYK_IMAGES,
    EXAMPLES,
    PNG_IMAGES,
    ImageName,
    image_name,
    label_of_wnid,
    parse_image_name,
    parse_wnid,
    validation_labels,
    wnids,
)


def test_lists_are_those_of_tfds() -> None:
    assert frozenset(tfds_builder.CMYK_IMAGES) == CMYK_IMAGES
    assert frozenset(tfds_builder.PNG_IMAGES) == PNG_IMAGES


def test_labels() -> None:
    assert (len(wnids()), wnids()[0], wnids()[999]) == (1000, "n01440764", "n15075141")
    assert list(wnids()) == sorted(set(wnids()))
    labels = validation_labels()
    assert len(labels) == 50_000
    assert labels[:3] == (65, 970, 230)
    assert {labels.count(label) for label in range(1000)} == {50}


def test_train_images_of_each_class() -> None:
    counts = [train_images(wnid) for wnid in wnids()]
    assert sum(counts) == EXAMPLES["train"]
    assert counts.count(1300) == 895
    assert (min(counts), max(counts)) == (732, 1300)
    assert counts[label_of_wnid()["n02089078"]] == 732


@pytest.mark.parametrize(
    ("name", "split", "wnid", "number"),
    [
        ("n01440764_10026.JPEG", "train", "n01440764", 10026),
        ("N01440764_18.jpg", "train", "n01440764", 18),
        ("ILSVRC2012_val_00000001.JPEG", "validation", None, 1),
        ("ilsvrc2012_VAL_00050000.jpeg", "validation", None, 50_000),
        ("ILSVRC2012_test_00100000.JPEG", "test", None, 100_000),
    ],
)
def test_names_in_any_spelling_mean_one_image(
    name: str, split: str, wnid: str | None, number: int
) -> None:
    parsed = parse_image_name(name)
    assert parsed is not None
    label = label_of_wnid()[wnid] if wnid else 0
    assert parsed == ImageName(split, wnid, number, image_name(split, label, number))


@pytest.mark.parametrize(
    "name",
    [
        "ILSVRC2012_val_0000001.JPEG",
        "ILSVRC2012_val_000000001.JPEG",
        "ILSVRC2013_val_00000001.JPEG",
        "n01440764_010.JPEG",
        "n0144076_1.JPEG",
        "n01440764_1.png",
        "n01440764_1.JPEG.part",
        "n01440764_\u0661.JPEG",
        "ILSVRC2012_val_0000000\u0661.JPEG",
        "",
    ],
)
def test_what_could_be_another_image_is_no_name(name: str) -> None:
    assert parse_image_name(name) is None


def test_wnids_of_folders_and_class_tars() -> None:
    assert parse_wnid("n01440764.tar") == parse_wnid("N01440764") == "n01440764"
    assert parse_wnid("n0144076") is None
    assert parse_wnid("n01440764.zip") is None
