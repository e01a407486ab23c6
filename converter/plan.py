"""Which record stands where: order, shard count, boundaries, exact sizes. Pure functions.

The rules are those of TFDS (`core/hashing.py`, `core/shuffle.py`, `core/utils/shard_utils.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from converter.imagenet import DATASET
from converter.records import FRAMING_BYTES, example_sizes


@dataclass(frozen=True)
class ShardLimits:
    """Between which sizes a shard should lie; the defaults are those of TFDS.

    Attributes:
        min_bytes: no split is cut so finely that its mean shard would be smaller.
        max_bytes: a split is cut until its mean shard is no larger, where it can be.
    """

    min_bytes: int = 64 << 20
    max_bytes: int = 1 << 30

    def shard_count(self, num_bytes: int, examples: int) -> int:
        """Returns the number of shards for a split.

        Args:
            num_bytes: sum of the serialized examples in bytes, without framing.
            examples: number of examples.
        """
        total = num_bytes + examples * FRAMING_BYTES
        most, least = total // self.min_bytes, total // self.max_bytes
        if least > 1024:
            # TFDS never returns where there are fewer examples than that.
            return min(-(-least // 1024) * 1024, examples)
        for count in (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2):
            if least <= count <= most and examples >= count:
                return count
        return 1


@dataclass(frozen=True)
class SplitPlan:
    """The layout of one split.

    Attributes:
        split: train, validation or test.
        order: rows of the split's index, in the order of the records.
        boundaries: position in `order` where each shard ends.
        num_bytes: serialized examples of each shard in bytes, without framing.
    """

    split: str
    order: npt.NDArray[np.int32]
    boundaries: tuple[int, ...]
    num_bytes: tuple[int, ...]

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.boundaries)

    def rows(self, shard: int) -> npt.NDArray[np.int32]:
        """Returns the index rows of a shard, in the order of its records."""
        start = self.boundaries[shard - 1] if shard else 0
        return self.order[start : self.boundaries[shard]]

    def file_size(self, shard: int) -> int:
        """Returns the exact length of a shard's file in bytes."""
        return self.num_bytes[shard] + FRAMING_BYTES * len(self.rows(shard))

    def filename(self, shard: int) -> str:
        """Returns the name of a shard's file in the TFDS layout."""
        return shard_filename(self.split, shard, self.shards)


def shard_filename(split: str, shard: int, shards: int) -> str:
    """Returns `imagenet2012-SPLIT.tfrecord-XXXXX-of-YYYYY`."""
    return f"{DATASET}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def record_key(split: str, name: bytes) -> bytes:
    """Returns md5(split + name), by which TFDS sorts the records of a split."""
    return hashlib.md5(split.encode() + name, usedforsecurity=False).digest()


def key_order(split: str, names: Sequence[str]) -> npt.NDArray[np.int32]:
    """Returns the positions of the names, in the order of their records."""
    keys = b"".join(record_key(split, name.encode()) for name in names)
    halves = np.frombuffer(keys, ">u8").reshape(-1, 2)
    return np.lexsort((halves[:, 1], halves[:, 0])).astype(np.int32)


def shard_boundaries(examples: int, shards: int) -> tuple[int, ...]:
    """Returns where each shard ends, rounding as TFDS does (half to even)."""
    return tuple(round(examples * shard / shards) for shard in range(1, shards + 1))


def plan_split(
    split: str,
    names: Sequence[str],
    sizes: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    limits: ShardLimits,
) -> SplitPlan:
    """Plans one split.

    Args:
        split: train, validation or test.
        names: the file name of every image.
        sizes: length of every image in bytes, as it will be stored.
        labels: label of every image.
        limits: bounds on the size of shards.

    Raises:
        ValueError: there are no images.
    """
    if not names:
        raise ValueError(f"the {split} split holds no images")
    lengths = np.fromiter((len(name) for name in names), np.int64, len(names))
    examples = example_sizes(lengths, sizes, labels)
    count = limits.shard_count(int(examples.sum()), len(names))
    order = key_order(split, names)
    boundaries = shard_boundaries(len(names), count)
    sums = np.concatenate(([0], np.cumsum(examples[order])))[np.array((0, *boundaries))]
    return SplitPlan(split, order, boundaries, tuple(int(size) for size in np.diff(sums)))
