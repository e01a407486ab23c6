"""The verifying worker's task: reads one shard back and checks every record in it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import BinaryIO, Final, cast

from converter.errors import printable
from converter.imagenet import NO_LABEL, label_of_wnid, parse_image_name, validation_labels
from converter.images import CorruptImage, validate
from converter.plan import record_key
from converter.records import Record, RecordError, parse_example, read_payloads

_PROBLEMS_KEPT: Final = 50
_BUFFER: Final = 1 << 20


@dataclass(frozen=True)
class ReadTask:
    """What a worker needs to check one shard.

    Attributes:
        path: the shard's file.
        split: the split that its name says.
        sha256: its digest in SHA256SUMS, None where there is none.
        decode: whether every image is decoded.
    """

    path: str
    split: str
    sha256: str | None
    decode: bool


@dataclass
class ShardFacts:
    """What was read of a shard.

    Attributes:
        name: its file name.
        records: readable records.
        num_bytes: serialized examples in bytes, without framing.
        size: length of the file in bytes.
        sha256: its digest.
        first: key of the first record, nothing where there is none.
        last: key of the last record.
        problems: what is wrong, naming the record.
        corrupt: images that do not decode.
    """

    name: str
    records: int = 0
    num_bytes: int = 0
    size: int = 0
    sha256: str = ""
    first: bytes = b""
    last: bytes = b""
    problems: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Adds a problem; beyond fifty of one shard nobody reads on."""
        if len(self.problems) < _PROBLEMS_KEPT:
            self.problems.append(printable(f"{self.name}: {problem}"))


class _HashingReader:
    """Digests a file while it is read, so that it is read once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data


def read_shard(task: ReadTask) -> ShardFacts:
    """Reads a shard: CRCs, examples, labels against names, ascending keys, digest.

    Whatever is wrong is listed in the result; nothing is raised for it.
    """
    facts = ShardFacts(os.path.basename(task.path))
    if os.path.exists(task.path) and not os.path.isfile(task.path):
        facts.add("cannot be read: no regular file")
        return facts
    try:
        with open(task.path, "rb", buffering=_BUFFER) as file:
            reader = _HashingReader(file)
            _read_records(task, reader, facts)
            while reader.read(_BUFFER):
                continue
            facts.size, facts.sha256 = reader.size, reader.digest.hexdigest()
    except OSError as error:
        facts.add(f"cannot be read: {error.strerror}")
        return facts
    if task.sha256 is not None and facts.sha256 != task.sha256:
        facts.add("its sha256 is not the one in SHA256SUMS")
    return facts


def _read_records(task: ReadTask, reader: _HashingReader, facts: ShardFacts) -> None:
    try:
        for payload in read_payloads(cast("BinaryIO", reader)):
            number = facts.records
            facts.records += 1
            facts.num_bytes += len(payload)
            try:
                record = parse_example(payload)
            except RecordError as error:
                facts.add(f"record {number}: {error}")
                continue
            _judge(task, record, number, facts)
    except RecordError as error:
        facts.add(str(error))


def _judge(task: ReadTask, record: Record, number: int, facts: ShardFacts) -> None:
    name = record.file_name.decode("utf-8", "replace")
    key = record_key(task.split, record.file_name)
    if facts.last and key <= facts.last:
        facts.add(f"record {number} ({name}): out of order, or twice")
    facts.first, facts.last = facts.first or key, key
    wanted = label_of_name(task.split, name)
    if wanted is None:
        facts.add(f"record {number} ({name}): not a name of the {task.split} split")
    elif wanted != record.label:
        facts.add(f"record {number} ({name}): label {record.label}, should be {wanted}")
    if task.decode:
        try:
            validate(record.image, "decode")
        except CorruptImage as error:
            facts.corrupt.append(printable(f"{facts.name}: record {number} ({name}): {error}"))


def label_of_name(split: str, name: str) -> int | None:
    """Returns the label that a record of this name must have, None where the name is wrong.

    The test archive of 2019 has its images in a folder, which TFDS leaves in the name.
    """
    image = parse_image_name(name.rpartition("/")[2] if split == "test" else name)
    if image is None or image.split != split:
        return None
    if split == "train":
        return label_of_wnid().get(image.wnid or "")
    if split == "test":
        return NO_LABEL
    labels = validation_labels()
    return labels[image.number - 1] if 1 <= image.number <= len(labels) else None
