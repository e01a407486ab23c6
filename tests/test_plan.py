"""Order, shard count and boundaries against TFDS's own functions, up to the real size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_datasets.core import hashing, naming
from tensorflow_datasets.core.utils import shard_utils

from converter.imagenet import numbered_name, train_name, wnids
from converter.plan import (
    ShardLimits,
    key_order,
    plan_split,
    shard_boundaries,
    shard_filename,
)
from converter.records import FRAMING_BYTES, frame_image

names = st.lists(
    st.one_of(
        st.builds(train_name, st.sampled_from(wnids()), st.integers(0, 40_000)),
        st.builds(numbered_name, st.just("validation"), st.integers(1, 50_000)),
    ),
    min_size=1,
    max_size=60,
    unique=True,
)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(names, st.sampled_from(["train", "validation", "test"]))
def test_order(names: list[str], split: str) -> None:
    hasher = hashing.Hasher(split)
    expected = sorted(range(len(names)), key=lambda n: hasher.hash_key(names[n]))
    assert key_order(split, names).tolist() == expected


@settings(derandomize=True, max_examples=1000, deadline=None)
@given(st.integers(1, 1 << 43), st.integers(1, 1_281_167) | st.integers(1, 5_000))
def test_shard_count(num_bytes: int, examples: int) -> None:
    least = (num_bytes + 16 * examples) // shard_utils.DEFAULT_MAX_SHARD_SIZE
    if least > 1024 and examples < -(-least // 1024) * 1024:
        assert ShardLimits().shard_count(num_bytes, examples) == examples
        return  # TFDS's own loop never ends
    expected = shard_utils.ShardConfig().get_number_shards(num_bytes, examples)
    assert ShardLimits().shard_count(num_bytes, examples) == expected


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.integers(1, 1_281_167), st.integers(1, 1024))
def test_boundaries(examples: int, shards: int) -> None:
    if examples < shards:
        return
    expected = shard_utils.get_shard_boundaries(examples, shards)
    assert list(shard_boundaries(examples, shards)) == expected


@pytest.mark.parametrize(
    ("num_bytes", "examples", "shards", "lengths"),
    [
        (146_999_114_192, 1_281_167, 1024, {1251, 1252}),
        (6_711_099_535, 50_000, 64, {781, 782}),
        (13_620_000_000, 100_000, 128, {781, 782}),
    ],
)
def test_the_real_splits(num_bytes: int, examples: int, shards: int, lengths: set[int]) -> None:
    assert ShardLimits().shard_count(num_bytes, examples) == shards
    boundaries = shard_boundaries(examples, shards)
    assert list(boundaries) == shard_utils.get_shard_boundaries(examples, shards)
    assert set(np.diff((0, *boundaries)).tolist()) == lengths


@settings(derandomize=True, max_examples=50, deadline=None)
@given(names, st.integers(0, 2**32))
def test_sizes_are_exact(names: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, labels = rng.integers(0, 3000, len(names)), rng.integers(-1, 1000, len(names))
    plan = plan_split("train", names, sizes, labels, ShardLimits(500, 2000))
    assert sorted(np.concatenate([plan.rows(n) for n in range(plan.shards)])) == list(
        range(len(names))
    )
    for shard in range(plan.shards):
        written = 0
        for row in plan.rows(shard).tolist():
            image = bytes(int(sizes[row]))
            before, after = frame_image(names[row].encode(), int(labels[row]), image)
            written += len(before) + len(image) + len(after)
        assert plan.file_size(shard) == written
        assert plan.num_bytes[shard] == written - FRAMING_BYTES * len(plan.rows(shard))


def test_file_names() -> None:
    template = naming.ShardedFileTemplate(
        data_dir="/x", dataset_name="imagenet2012", split="train", filetype_suffix="tfrecord"
    )
    for shard, shards in ((0, 1), (3, 64), (1023, 1024)):
        expected = template.sharded_filepath(shard_index=shard, num_shards=shards).name
        assert shard_filename("train", shard, shards) == expected


def test_no_images() -> None:
    empty = np.array([], np.int64)
    with pytest.raises(ValueError, match="holds no images"):
        plan_split("train", [], empty, empty, ShardLimits())
