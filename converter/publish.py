"""Makes the finished shards a dataset: TFDS's metadata and checksums."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from converter import osal
from converter.imagenet import DATASET, SPLITS
from converter.output import output_errors, write_durably
from converter.published import CHECKSUMS, METADATA, PublishedSplit
from converter.shards import ShardResult
from converter.work import file_sha256

if TYPE_CHECKING:
    from converter.plan import SplitPlan

METADATA_BYTES: Final = 1 << 20
"""Room for everything beside the shards."""


def make_builder() -> Any:
    """Returns TFDS's builder of ImageNet 2012; imports TFDS, but not TensorFlow.

    It is given no prepared dataset to look at, and the empty folder that TFDS makes among the
    system's temporary files for each builder is removed.
    """
    logging.getLogger("absl").setLevel(logging.ERROR)
    import tensorflow_datasets as tfds

    with tempfile.TemporaryDirectory() as place:
        usual, tempfile.tempdir = tempfile.tempdir, place
        try:
            return tfds.builder(DATASET, data_dir=place)
        finally:
            tempfile.tempdir = usual


def dataset_version() -> str:
    """Returns the version that the installed TFDS wants, such as 5.1.0."""
    return str(make_builder().version)


def shards_by_split(
    plans: Iterable[SplitPlan], results: Mapping[str, ShardResult]
) -> dict[str, list[ShardResult]]:
    """Returns the results of each split's shards, in order."""
    return {
        plan.split: [results[plan.filename(shard)] for shard in range(plan.shards)]
        for plan in plans
    }


def write_metadata(
    folder: Path,
    shards: Mapping[str, list[ShardResult]],
    existing: Mapping[str, PublishedSplit],
) -> None:
    """Writes `dataset_info.json`, `features.json` and `label.labels.txt` with TFDS's classes.

    Args:
        folder: the folder of the shards.
        shards: the shards of each split, in order.
        existing: the splits of a dataset that these join.

    Raises:
        OutputError: they cannot be written.
    """
    import tensorflow_datasets as tfds

    builder = make_builder()
    template = tfds.core.ShardedFileTemplate(
        data_dir=builder.data_dir, dataset_name=DATASET, filetype_suffix="tfrecord"
    )
    builder.info.set_splits(
        tfds.core.splits.SplitDict(
            tfds.core.SplitInfo(
                name=split.split,
                shard_lengths=list(split.lengths),
                num_bytes=split.num_bytes,
                filename_template=template,
            )
            for split in _in_order(shards, existing)
        )
    )
    with output_errors(folder / METADATA[0]):
        builder.info.write_to_directory(os.fspath(folder))
        for name in METADATA:
            with open(folder / name, "r+b") as file:
                _end_lines_alike(file)
                os.fsync(file.fileno())


def _end_lines_alike(file: BinaryIO) -> None:
    """Ends lines as everywhere: on Windows TFDS ends them as Windows does."""
    data = file.read()
    if b"\r\n" in data:
        file.seek(0)
        file.write(data.replace(b"\r\n", b"\n"))
        file.truncate()
        file.flush()


def _in_order(
    shards: Mapping[str, list[ShardResult]], existing: Mapping[str, PublishedSplit]
) -> list[PublishedSplit]:
    written = {
        split: PublishedSplit(
            split,
            tuple(shard.records for shard in results),
            sum(shard.num_bytes for shard in results),
        )
        for split, results in shards.items()
    }
    return [{**existing, **written}[split] for split in SPLITS if split in {**existing, **written}]


def write_checksums(
    folder: Path, shards: Mapping[str, list[ShardResult]], others: Mapping[str, str]
) -> None:
    """Writes SHA256SUMS over shards and metadata, in the format of coreutils.

    Args:
        folder: the folder of the shards and the metadata.
        shards: the shards of each split.
        others: digests of the shards of a dataset that these join.

    Raises:
        OutputError: it cannot be written.
    """
    digests = dict(others)
    digests |= {shard.name: shard.sha256 for results in shards.values() for shard in results}
    digests |= {name: file_sha256(folder / name) for name in METADATA}
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    write_durably(folder / CHECKSUMS, lines.encode("ascii"))


def sweep(folder: Path, keep: Iterable[str]) -> None:
    """Removes what does not belong into the finished folder: temporary and unjournaled files."""
    kept = set(keep)
    with output_errors(folder):
        for path in folder.iterdir():
            if path.name not in kept:
                osal.remove(path, missing_ok=True)
