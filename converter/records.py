"""TFRecord files of `tf.train.Example` messages with the three features of an image record.

An example holds `file_name` (bytes), `image` (bytes) and `label` (int64), serialized with the map
keys sorted, so that equal input gives equal bytes. Layouts follow TensorFlow's `example.proto`,
`feature.proto` and `core/lib/io/record_writer.h`; the CRC is Castagnoli's, masked as in
`core/lib/hash/crc32c.h`. The image's bytes are never copied on the way.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

FRAMING_BYTES: Final = 16
"""Length (8), its CRC (4) and the CRC of the payload (4) around each record."""

LARGEST_RECORD: Final = 1 << 30
"""Reading refuses longer records: a damaged length must not ask for all memory."""

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_FILE_NAME, _IMAGE, _LABEL = b"file_name", b"image", b"label"


class RecordError(Exception):
    """A TFRecord file or an example in it is damaged; the message says where and how."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record read back.

    Attributes:
        file_name: the image's name.
        label: the class, or -1.
        image: the image file's bytes.
        size: length of the serialized example in bytes.
    """

    file_name: bytes
    label: int
    image: bytes
    size: int


_ONE_BYTE = tuple(bytes([value]) for value in range(0x80))


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload_size: int) -> bytes:
    return _ONE_BYTE[number << 3 | 2] + _varint(payload_size)


def _entry(key: bytes, kind: int, payload_size: int) -> bytes:
    """Opens a map entry of `Features`, up to where the payload of `payload_size` bytes begins."""
    values = _field(1, payload_size)
    feature = _field(kind, len(values) + payload_size)
    inner = _field(1, len(key)) + key
    inner += _field(2, len(feature) + len(values) + payload_size) + feature + values
    return _field(1, len(inner) + payload_size) + inner


@functools.lru_cache(maxsize=256)
def _name_entry(length: int) -> bytes:
    return _entry(_FILE_NAME, 1, length)


@functools.lru_cache(maxsize=2048)
def _label_entry(label: int) -> bytes:
    value = _varint(label)
    return _entry(_LABEL, 3, len(value)) + value


def frame_image(file_name: bytes, label: int, image: bytes) -> tuple[bytes, bytes]:
    """Returns what stands before and after the image's bytes in its framed TFRecord.

    The record is `before + image + after`: length and CRC, the serialized example, its CRC.
    """
    tail = _label_entry(label)
    entries = _name_entry(len(file_name)) + file_name + _entry(_IMAGE, 1, len(image))
    head = _field(1, len(entries) + len(image) + len(tail)) + entries
    size = _LENGTH.pack(len(head) + len(image) + len(tail))
    crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(head), image), tail)
    before = size + _CRC.pack(_mask(google_crc32c.value(size))) + head
    return before, tail + _CRC.pack(_mask(crc))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example_sizes(
    name_lengths: npt.NDArray[np.int64],
    image_sizes: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Returns the serialized length in bytes of the example of each image, without framing."""
    label_lengths = np.where(labels < 0, 10, _varint_lengths(labels))
    features = (
        _entry_sizes(len(_FILE_NAME), name_lengths)
        + _entry_sizes(len(_IMAGE), image_sizes)
        + _entry_sizes(len(_LABEL), label_lengths)
    )
    return features + 1 + _varint_lengths(features)


def _entry_sizes(key_length: int, payloads: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    size = payloads
    for _ in range(3):  # value in its list, list in its feature, feature in the map entry
        size = size + 1 + _varint_lengths(size)
    size = size + 2 + key_length
    return size + 1 + _varint_lengths(size)


def _varint_lengths(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    lengths = np.ones_like(values)
    for bits in range(7, 63, 7):
        lengths += values >= (1 << bits)
    return lengths


def read_payloads(file: BinaryIO) -> Iterator[bytes]:
    """Yields the payload of each record of a TFRecord file, checking both CRCs.

    Raises:
        RecordError: a CRC is wrong or the file ends inside a record; names record and offset.
    """
    offset = number = 0
    while header := file.read(_HEADER.size):
        where = f"record {number} at byte {offset}"
        if len(header) < _HEADER.size:
            raise RecordError(f"{where}: the file ends inside the record's header")
        length, length_crc = _HEADER.unpack(header)
        if _mask(google_crc32c.value(header[:8])) != length_crc or length > LARGEST_RECORD:
            raise RecordError(f"{where}: the CRC of the length is wrong")
        payload = file.read(length)
        footer = file.read(_CRC.size)
        if len(payload) < length or len(footer) < _CRC.size:
            raise RecordError(f"{where}: the file ends inside the record's data")
        if _mask(google_crc32c.value(payload)) != _CRC.unpack(footer)[0]:
            raise RecordError(f"{where}: the CRC of the data is wrong")
        yield payload
        offset += length + FRAMING_BYTES
        number += 1


def parse_example(payload: bytes) -> Record:
    """Parses a serialized image example, in whatever order its features stand.

    Raises:
        RecordError: the message is malformed or lacks one of the three features.
    """
    found: dict[bytes, Any] = {}
    for number, features in _fields(memoryview(payload)):
        if number != 1:
            continue
        for _, entry in _fields(features):
            parts = dict(_fields(entry))
            key, feature = parts.get(1), parts.get(2)
            if key is not None and feature is not None:
                found[bytes(key)] = dict(_fields(feature))
    return Record(
        file_name=_bytes_value(found, _FILE_NAME),
        label=_int_value(found, _LABEL),
        image=_bytes_value(found, _IMAGE),
        size=len(payload),
    )


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        if tag & 7 == 0:
            start = position
            _, position = _read_varint(message, position)
            yield tag >> 3, message[start:position]
            continue
        if tag & 7 != 2:
            raise RecordError(f"example is malformed: wire type {tag & 7}")
        size, position = _read_varint(message, position)
        if position + size > len(message):
            raise RecordError("example is malformed: a field runs past its end")
        yield tag >> 3, message[position : position + size]
        position += size


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RecordError("example is malformed: an unfinished number")


def _bytes_value(found: dict[bytes, Any], key: bytes) -> bytes:
    values = list(_fields(found.get(key, {}).get(1, memoryview(b""))))
    if len(values) != 1:
        raise RecordError(f"example holds {len(values)} values of {key.decode()}, not one")
    return bytes(values[0][1])


def _int_value(found: dict[bytes, Any], key: bytes) -> int:
    values = list(_fields(found.get(key, {}).get(3, memoryview(b""))))
    if len(values) != 1:
        raise RecordError(f"example holds {len(values)} values of {key.decode()}, not one")
    value, end = _read_varint(values[0][1], 0)
    if end != len(values[0][1]):
        raise RecordError(f"example holds several values of {key.decode()}, not one")
    return value - (1 << 64) if value >= 1 << 63 else value
