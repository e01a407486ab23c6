"""Whether two datasets hold the same records, in the same order and shards."""

from __future__ import annotations

import itertools
from pathlib import Path

from converter.published import METADATA, read_info
from converter.records import parse_example, read_payloads


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
