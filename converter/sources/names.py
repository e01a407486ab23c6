"""What the names in a source tell about its layout; labels are not known here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import basename
from typing import Final

from converter.imagenet import OFFICIAL_ARCHIVES, SPLITS, parse_image_name, parse_wnid

KAGGLE_FOLDER: Final = "ILSVRC"
"""The top of Kaggle's tree: ILSVRC/Data/CLS-LOC/{train,val,test}, Annotations beside Data."""
KAGGLE_NAMES: Final = ("imagenet-object-localization-challenge", "imagenet_object_localization")

PATCH_NAME: Final = "ILSVRC2012_img_test_patch_v10102019.tar"
"""The test images that were replaced on October 10, 2019."""
_PATCH: Final = re.compile(r"(?<![a-z])patch(?!ed|work)", re.IGNORECASE)

COMPRESSED_SUFFIXES: Final = (
    *(".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"),
    *(".tgz", ".tbz2", ".txz", ".tzst"),
)
ARCHIVE_SUFFIXES: Final = (".tar", ".zip", *COMPRESSED_SUFFIXES)
"""Suffixes of the archives that are looked into where a folder holds them."""

_KNOWN_FOLDER: Final = re.compile(
    r"ilsvrc|ilsvrc2012|ilsvrc2012_img_(train|val|test)\w*|data|cls-loc|images"
    r"|train(ing)?|val(id|idation)?|test|imagenet(-?1k|_?2012)?"
    r"|imagenet-object-localization-challenge|imagenet_object_localization\w*",
    re.IGNORECASE | re.ASCII,
)


def splits_named(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the splits that images and class tars among the names belong to."""
    found = set()
    for name in names:
        base = basename(name)
        if is_class_tar(base):
            found.add("train")
        elif image := parse_image_name(base):
            found.add(image.split)
        if len(found) == len(SPLITS):
            break
    return tuple(split for split in SPLITS if split in found)


def is_class_tar(base: str) -> bool:
    """Returns whether a base name is `n########.tar`."""
    return base.lower().endswith(".tar") and parse_wnid(base) is not None


def is_known_folder(base: str) -> bool:
    """Returns whether a folder's name is one that ImageNet's usual trees have."""
    return _KNOWN_FOLDER.fullmatch(base) is not None


def is_official(base: str) -> bool:
    """Returns whether a base name is one that image-net.org or Kaggle gave, or their folder's."""
    stem = base[:-4] if base.lower().endswith(ARCHIVE_SUFFIXES) else base
    if base == stem:
        return base == KAGGLE_FOLDER or f"{base}.tar" in (*OFFICIAL_NAMES, PATCH_NAME)
    return base in OFFICIAL_NAMES or base == PATCH_NAME or stem.startswith(KAGGLE_NAMES)


def is_patch(base: str) -> bool:
    """Returns whether a name says that it is a patch; it is one where it holds test images only."""
    return _PATCH.search(base) is not None


OFFICIAL_NAMES: Final = frozenset(archive.name for archive in OFFICIAL_ARCHIVES)
