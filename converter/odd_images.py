"""Converts the train images that TFDS re-encodes, before planning, so that sizes are known.

Each converted image becomes a file of its own that the index then points at. Where TensorFlow is
needed, it runs in one process that ends before the shards begin.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from converter import pool
from converter.errors import DamagedImageError, StagedFilesGoneError
from converter.imagenet import CMYK_IMAGES, PNG_IMAGES, label_of_wnid, parse_image_name
from converter.images import CorruptImage
from converter.index import Index
from converter.output import make_folder, write_durably
from converter.quiet import quiet_tensorflow
from converter.reencode import CMYK_TO_RGB, PNG_TO_JPEG, by_pillow, by_tensorflow
from converter.scan import Rows
from converter.sources.base import STAGED, SourceFile
from converter.sources.reading import ImageReader

_CONVERSIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(CMYK_IMAGES, CMYK_TO_RGB),
    **dict.fromkeys(PNG_IMAGES, PNG_TO_JPEG),
}


@dataclass(frozen=True)
class _OddImage:
    name: str
    row: int
    file: SourceFile
    offset: int
    size: int


def holds_odd_images(index: Index) -> bool:
    """Returns whether there are images whose length changes by their conversion."""
    return bool(_odd_images(index))


def convert_odd_images(index: Index, folder: Path, workers: int) -> Index:
    """Returns the index with the images on TFDS's lists replaced by their conversions.

    An image that TensorFlow cannot decode is left as it is; the shard's validation judges it.

    Args:
        index: the index of the archives.
        folder: where the converted images are kept; made when there are any.
        workers: how many processes convert.

    Raises:
        SourceReadError: an image cannot be read.
        StagedFilesGoneError: one is not staged any more and was not converted before.
        OutputError: a converted image cannot be written.
    """
    odd = _odd_images(index)
    if not odd:
        return index
    converted = {image.name: _kept(image, folder) for image in odd if _is_gone(image)}
    new = [image for image in odd if image.name not in converted]
    converted |= _convert(new, workers)
    rows, files = index.splits["train"].copy(), list(index.files)
    if any(converted.values()):
        make_folder(folder)
    for image in odd:
        if data := converted[image.name]:
            path = folder / image.name
            write_durably(path, data)
            rows[image.row] = (*rows[image.row].tolist()[:2], len(files), 0, len(data))
            files.append(SourceFile.of(str(path)))
    return Index(tuple(files), {**index.splits, "train": rows}, index.findings)


def _is_gone(image: _OddImage) -> bool:
    """Returns whether the shards of an earlier run have made its staged file needless."""
    return image.file.kind == STAGED and not os.path.exists(image.file.path)


def _kept(image: _OddImage, folder: Path) -> bytes:
    """Returns an image that an earlier run of this conversion has converted."""
    try:
        return (folder / image.name).read_bytes()
    except FileNotFoundError:
        raise StagedFilesGoneError(f"the staged file of {image.name} is gone") from None


def _odd_images(index: Index) -> list[_OddImage]:
    found: list[_OddImage] = []
    if "train" not in index.splits:
        return found
    rows = index.splits["train"]
    for name in sorted(_CONVERSIONS):
        image = parse_image_name(name)
        assert image is not None
        row = _find(rows, label_of_wnid()[image.wnid or ""], image.number)
        if row is not None:
            at = rows[row]
            file = index.files[int(at["file"])]
            found.append(_OddImage(name, row, file, int(at["offset"]), int(at["size"])))
    return found


def _find(rows: Rows, label: int, number: int) -> int | None:
    matches = np.flatnonzero((rows["label"] == label) & (rows["number"] == number))
    return int(matches[0]) if len(matches) else None


def _convert(odd: Sequence[_OddImage], workers: int) -> dict[str, bytes]:
    """Returns each image's conversion by name, nothing for one that does not decode."""
    results = dict(pool.run(_convert_by_pillow, odd, workers))
    left = [image for image in odd if results[image.name] is None]
    if left:
        results.update(*pool.run(_convert_by_tensorflow, [left], 1))
        pool.shut_down()
    return {name: data or b"" for name, data in results.items()}


def _convert_by_pillow(image: _OddImage) -> tuple[str, bytes | None]:
    try:
        return image.name, by_pillow(_CONVERSIONS[image.name], _read(image))
    except DamagedImageError:
        return image.name, b""


def _convert_by_tensorflow(odd: Sequence[_OddImage]) -> dict[str, bytes]:
    results = {}
    with quiet_tensorflow():
        for image in odd:
            try:
                results[image.name] = by_tensorflow(_CONVERSIONS[image.name], _read(image))
            except CorruptImage:
                results[image.name] = b""
    return results


def _read(image: _OddImage) -> bytes:
    with closing(ImageReader([image.file])) as reader:
        return reader.read(0, image.name, image.offset, image.size)
