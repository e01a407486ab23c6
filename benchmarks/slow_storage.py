"""`python -m benchmarks.slow_storage`: what is left of the decode limit when every read waits.

Each read of an archive is delayed in every process, as a network mount would; the time is spent
asleep, as it is there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.contestants import DECODE_LIMIT, Material, inner_seconds, make_material
from benchmarks.measure import run
from converter.demo import DemoSize
from converter.pool import default_workers

CHECKOUT = Path(__file__).parents[1]
_DELAY = """
import time
from converter.osal import RandomReader
real = RandomReader._read_once
def delayed(self, offset, size):
    if self.path.endswith(".tar"):
        time.sleep({seconds})
    return real(self, offset, size)
RandomReader._read_once = delayed
"""


def main(
    images: Annotated[int, typer.Option(help="Train images; a tenth more for validation.")] = 24000,
    rounds: Annotated[int, typer.Option(help="How often each runs.")] = 3,
    delay_ms: Annotated[float, typer.Option(help="Milliseconds that each read waits.")] = 5.0,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 8,
    folder: Annotated[Path | None, typer.Option(help="Where to work.")] = None,
) -> None:
    """Compares a conversion from slow storage with decoding from the page cache."""
    size = DemoSize(images_per_class=max(1, images // 1000), validation=images // 10, test=0)
    with tempfile.TemporaryDirectory(dir=folder, prefix="imagenet-benchmark-") as work:
        material = make_material(Path(work), size)
        (Path(work) / "sitecustomize.py").write_text(
            _DELAY.format(seconds=delay_ms / 1000), encoding="ascii"
        )
        shares = [_share(material, Path(work), workers) for _ in range(rounds)]
    whole, inner = (median(column) for column in zip(*shares, strict=True))
    print(
        f"{workers} workers, {delay_ms} ms a read, {material.images:,} images: {inner:.0%} of the "
        f"decode limit of {default_workers()} processes ({whole:.0%} of it for the whole command), "
        f"medians of {rounds} rounds"
    )


def _share(material: Material, work: Path, workers: int) -> tuple[float, float]:
    """Returns limit over conversion: of the whole processes, and of the images alone."""
    python, out = sys.executable, work / "out"
    limit = run(
        [python, str(Path(__file__).with_name("decode_limit.py")), str(material.places),
         str(default_workers())],
        out,
        {},
    )  # fmt: skip
    shutil.rmtree(out, ignore_errors=True)
    slow = run(
        [python, "-m", "converter", "--source", str(material.archives), "--out", str(out),
         "--allow-incomplete", "--quiet", "--workers", str(workers)],
        out,
        {"PYTHONPATH": os.pathsep.join((str(work), str(CHECKOUT)))},
    )  # fmt: skip
    inner = inner_seconds(DECODE_LIMIT, out, limit.output)[0], inner_seconds("", out, "")[0]
    assert inner[0]
    assert inner[1]
    print(
        f"decode limit {limit.seconds:.1f} s ({inner[0]:.1f} s), slow {slow.seconds:.1f} s "
        f"({inner[1]:.1f} s)",
        flush=True,
    )
    return limit.seconds / slow.seconds, inner[0] / inner[1]


if __name__ == "__main__":
    typer.run(main)
