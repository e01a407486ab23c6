"""Writes a shard that killed its worker, and finds the image that did it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from converter import osal, pool
from converter.errors import ConversionError
from converter.shards import ShardResult, ShardTask, write_shard

_SUFFIX: Final = ".trace"
_DEATHS_TO_BLAME: Final = 2
_DEATHS_AT_NO_IMAGE: Final = 3


def write_carefully(task: ShardTask) -> ShardResult:
    """Writes a shard in a process of its own that notes each image before it decodes it.

    An image at which the process dies twice is taken for corrupt and not decoded again.

    Args:
        task: the shard.

    Raises:
        ConversionError: the process dies at no image in particular.
    """
    trace = Path(task.folder, task.name + _SUFFIX)
    deaths: Counter[int] = Counter()
    try:
        while True:
            deadly = frozenset(place for place, n in deaths.items() if n >= _DEATHS_TO_BLAME)
            trace.write_bytes(b"")
            attempt = replace(task, trace=str(trace), deadly=deadly)
            try:
                (result,) = pool.run(write_shard, itertools.repeat(attempt, 1), 1)
            except pool.WorkerDied as error:
                deaths[int(trace.read_bytes() or b"-1")] += 1
                if deaths[-1] >= _DEATHS_AT_NO_IMAGE:
                    raise ConversionError(
                        f"worker processes die before they convert an image of {task.name}: {error}"
                    ) from error
            else:
                return result
    finally:
        osal.remove(trace, missing_ok=True)
