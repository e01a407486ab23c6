"""What decoding alone costs, as a process of its own: `decode_limit.py PLACES PROCESSES`.

PLACES is a .npz file with the archives' paths and, for every image, the archive's number, offset
and size. Each process reads its images one by one and decodes them with Pillow at 1/8 scale, which
reads every coded bit. It does nothing else.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import time

import numpy as np
from PIL import Image

_CHUNK = 64


def decode(paths: list[str], places: list[tuple[int, int, int]]) -> int:
    """Decodes some images; returns how many."""
    files = [os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)) for path in paths]
    for number, offset, size in places:
        if hasattr(os, "pread"):
            data = os.pread(files[number], size, offset)
        else:
            os.lseek(files[number], offset, os.SEEK_SET)
            data = os.read(files[number], size)
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (1, 1))
        image.load()
    for file in files:
        os.close(file)
    return len(places)


def main(places_file: str, processes: int) -> None:
    """Decodes all images and prints the seconds that it took without starting the processes."""
    with np.load(places_file) as saved:
        paths = saved["paths"].tolist()
        places = list(
            zip(*(saved[name].tolist() for name in ("files", "offsets", "sizes")), strict=True)
        )
    chunks = [places[start : start + _CHUNK] for start in range(0, len(places), _CHUNK)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.starmap(decode, [(paths, places[:1])] * processes, chunksize=1)
        began = time.perf_counter()
        done = sum(pool.starmap(decode, [(paths, chunk) for chunk in chunks], chunksize=1))
        seconds = time.perf_counter() - began
    if done != len(places):
        raise SystemExit("not every image was decoded")
    print(seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
