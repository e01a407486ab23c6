"""The direct encoder against TensorFlow's own protobuf and TFRecord reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converter.records import (
    FRAMING_BYTES,
    RecordError,
    example_sizes,
    frame_image,
    parse_example,
    read_payloads,
)

names = st.binary(max_size=300)
labels = st.sampled_from([-1, 0, 1, 127, 128, 999]) | st.integers(-(2**63), 2**63 - 1)
images = st.binary(max_size=400) | st.integers(0, 70_000).map(lambda n: b"\xa5" * n)


def expected_example(tf: Any, name: bytes, label: int, image: bytes) -> bytes:
    feature = tf.train.Feature
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "file_name": feature(bytes_list=tf.train.BytesList(value=[name])),
                "image": feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": feature(int64_list=tf.train.Int64List(value=[label])),
            }
        )
    )
    return bytes(example.SerializeToString(deterministic=True))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(names, labels, images)
def test_bytes_are_protobufs_and_sizes_are_known_before(
    tf: Any, name: bytes, label: int, image: bytes
) -> None:
    before, after = frame_image(name, label, image)
    (payload,) = read_payloads(io.BytesIO(before + image + after))
    assert payload == expected_example(tf, name, label, image)
    columns = [np.array([value], np.int64) for value in (len(name), len(image), label)]
    assert example_sizes(*columns).tolist() == [len(payload)]
    record = parse_example(payload)
    assert (record.file_name, record.label, record.image) == (name, label, image)
    assert record.size == len(payload) == len(before + image + after) - FRAMING_BYTES


def test_tensorflow_reads_the_framing(tf: Any, tmp_path: Path) -> None:
    records = [(b"a_%d.JPEG" % n, n - 1, bytes(range(256)) * n) for n in range(5)]
    framed = [(frame_image(*record), record[2]) for record in records]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"".join(before + image + after for (before, after), image in framed))
    read = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    assert read == [expected_example(tf, *record) for record in records]


def test_any_map_order_is_read(tf: Any) -> None:
    example = tf.train.Example.FromString(expected_example(tf, b"n.JPEG", 7, b"pixels"))
    parts = [
        tf.train.Features(feature={key: example.features.feature[key]}).SerializeToString()
        for key in ("label", "image", "file_name")
    ]
    body = b"".join(parts)
    record = parse_example(b"\x0a" + bytes([len(body)]) + body)
    assert (record.file_name, record.label, record.image) == (b"n.JPEG", 7, b"pixels")


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    data = b"".join(
        part
        for number in range(2)
        for before, after in [frame_image(b"n_%d.JPEG" % number, number, b"\xff\xd8pixels")]
        for part in (before, b"\xff\xd8pixels", after)
    )
    boundaries = {0, len(data) // 2, len(data)}
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(RecordError, match=r"record [01] at byte"):
                list(read_payloads(io.BytesIO(damaged)))
        if position not in boundaries:
            with pytest.raises(RecordError, match="ends inside"):
                list(read_payloads(io.BytesIO(data[:position])))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_junk_examples_raise_nothing_else(junk: bytes) -> None:
    try:
        parse_example(junk)
    except RecordError:
        return
    raise AssertionError("junk without the three features was taken for an example")
