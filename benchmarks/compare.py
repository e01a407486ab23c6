"""Whether two datasets hold the same records, in the same order and shards."""

from __future__ import annotations

import itertools
from pathlib import Path

from converter.published import CHECKSUMS, METADATA, read_info
from converter.records import parse_example, read_payloads
from converter.work import file_sha256


class Comparison:
    """Compares datasets with one that TFDS made; the records of equal files only once.

    Args:
        theirs: version folder of TFDS's dataset.

    Attributes:
        records: how many every dataset has in common with it.
    """

    def __init__(self, theirs: Path) -> None:
        self._theirs = theirs
        self._equal = b""
        self.records = 0

    def add(self, ours: Path) -> None:
        """Compares one.

        Raises:
            AssertionError: a record or a metadata file differs, or a file from its checksum.
        """
        sums = (ours / CHECKSUMS).read_bytes()
        for line in sums.decode("ascii").splitlines():
            digest, name = line.split("  ")
            if file_sha256(ours / name) != digest:
                raise AssertionError(f"{name} has not the digest of {CHECKSUMS}")
        if sums != self._equal:
            self.records = equal_records(ours, self._theirs)
            self._equal = sums


def equal_records(ours: Path, theirs: Path) -> int:
    """Returns how many records two version folders have in common: all of them.

    Raises:
        AssertionError: a record or a metadata file differs.
    """
    for name in METADATA:
        if (ours / name).read_bytes() != (theirs / name).read_bytes():
            raise AssertionError(f"{name} differs")
    count = 0
    for split in read_info(ours).values():
        for name in split.shard_names:
            with open(ours / name, "rb") as one, open(theirs / name, "rb") as other:
                pairs = itertools.zip_longest(read_payloads(one), read_payloads(other))
                for number, (mine, yours) in enumerate(pairs):
                    if not mine or not yours or parse_example(mine) != parse_example(yours):
                        raise AssertionError(f"{name}: record {number} differs")
                    count += 1
    return count
