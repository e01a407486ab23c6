"""Medians, ratios, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contestants import COPY_LIMIT, DECODE_LIMIT, TFDS
from benchmarks.measure import Measurement

Key = tuple[str, int]
"""Contestant and number of processes."""


@dataclass(frozen=True)
class Round:
    """One run of one contestant.

    Attributes:
        name: the contestant.
        workers: its processes.
        measurement: what the whole process took.
        images_seconds: of that, the images themselves; None where that cannot be told.
        index_seconds: and the index.
        load: the machine's load average when it began.
    """

    name: str
    workers: int
    measurement: Measurement
    images_seconds: float | None
    index_seconds: float | None
    load: float


@dataclass(frozen=True)
class Row:
    """The medians of one contestant.

    Attributes:
        name: the contestant.
        workers: its processes.
        seconds: of the whole process.
        rate: images per second of the whole process.
        images_rate: images per second without start, index and metadata.
        index_seconds: seconds that the index took.
        cpu_seconds: of all its processes.
        peak_memory: of all its processes together, in bytes.
        written: bytes written.
        temporary: bytes of temporary files at the worst moment.
        rates: the rate of each round.
    """

    name: str
    workers: int
    seconds: float
    rate: float
    images_rate: float | None
    index_seconds: float | None
    cpu_seconds: float
    peak_memory: int
    written: int | None
    temporary: int
    rates: tuple[float, ...]


def rows_of(rounds: Iterable[Round], images: int) -> dict[Key, Row]:
    """Returns the medians of each contestant over all rounds."""
    grouped: dict[Key, list[Round]] = {}
    for one in rounds:
        grouped.setdefault((one.name, one.workers), []).append(one)
    return {key: _row(*key, runs, images) for key, runs in grouped.items()}


def _row(name: str, workers: int, runs: Sequence[Round], images: int) -> Row:
    took = [run.measurement for run in runs]
    inner = [run.images_seconds for run in runs if run.images_seconds]
    index = [run.index_seconds for run in runs if run.index_seconds]
    written = [one.written for one in took if one.written is not None]
    return Row(
        name=name,
        workers=workers,
        seconds=median(one.seconds for one in took),
        rate=images / median(one.seconds for one in took),
        images_rate=images / median(inner) if inner else None,
        index_seconds=median(index) if index else None,
        cpu_seconds=median(one.cpu_seconds for one in took),
        peak_memory=int(median(one.peak_memory for one in took)),
        written=int(median(written)) if written else None,
        temporary=int(median(one.temporary for one in took)),
        rates=tuple(round(images / one.seconds, 1) for one in took),
    )


def ratios_of(rounds: Sequence[Round]) -> dict[str, float]:
    """Returns the medians of the ratios that the targets are about, each taken within a round."""
    by_key: dict[Key, list[Round]] = {}
    for one in rounds:
        by_key.setdefault((one.name, one.workers), []).append(one)
    most = max(workers for _, workers in by_key)

    def ratio(base: Key, other: Key, *, inner: bool = False) -> float | None:
        if base not in by_key or other not in by_key:
            return None
        pairs = zip(by_key[base], by_key[other], strict=True)
        return median(_seconds(one, inner) / _seconds(two, inner) for one, two in pairs)

    wanted: dict[str, float | None] = {}
    levels = ("decode", "header", "off", "digest")
    for workers in sorted({1, most}):
        of = f"{workers} worker{'s' if workers > 1 else ''}"
        for level in levels:
            wanted[f"{level}, {of}, to TFDS"] = ratio((TFDS, 1), (level, workers))
        wanted[f"decode, {of}, to the decode limit"] = ratio(
            (DECODE_LIMIT, workers), ("decode", workers)
        )
        wanted[f"decode, {of}, to the decode limit, images only"] = ratio(
            (DECODE_LIMIT, workers), ("decode", workers), inner=True
        )
        for level in ("header", "off"):
            wanted[f"{level}, {of}, to the copy limit"] = ratio((COPY_LIMIT, 1), (level, workers))
    if most > 1:
        for name in (DECODE_LIMIT, "decode"):
            wanted[f"{name}, {most} workers to 1"] = ratio((name, 1), (name, most))
            wanted[f"{name}, {most} workers to 1, images only"] = ratio(
                (name, 1), (name, most), inner=True
            )
    return {name: round(value, 3) for name, value in wanted.items() if value}


def _seconds(one: Round, inner: bool) -> float:
    return (one.images_seconds if inner else None) or one.measurement.seconds


def text_table(rows: Mapping[Key, Row]) -> str:
    """Returns the rows as a Markdown table."""
    lines = [
        "| | workers | images/s | images only | index s | CPU s | peak memory | written "
        "| temporary |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        inner = f"{row.images_rate:,.0f}" if row.images_rate else ""
        index = f"{row.index_seconds:.1f}" if row.index_seconds else ""
        lines.append(
            f"| {row.name} | {row.workers} | {row.rate:,.0f} | {inner} | {index} | "
            f"{row.cpu_seconds:.1f} | {_megabytes(row.peak_memory)} | {_megabytes(row.written)} | "
            f"{_megabytes(row.temporary)} |"
        )
    return "\n".join(lines)


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.0f} MB"


def plain(rows: Mapping[Key, Row]) -> list[dict[str, Any]]:
    """Returns the rows for a JSON file."""
    return [asdict(row) for row in rows.values()]


def plot(path: Path, media: Mapping[str, Mapping[Key, Row]]) -> None:
    """Draws the rates of all contestants, a panel for each medium, to a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(media), figsize=(7 * len(media), 5), squeeze=False, constrained_layout=True
    )
    for panel, (medium, rows) in zip(axes[0], media.items(), strict=True):
        shown = list(rows.values())[::-1]
        names = [f"{row.name}, {row.workers}" for row in shown]
        limits = (TFDS, DECODE_LIMIT, COPY_LIMIT)
        colors = ["tab:gray" if row.name in limits else "tab:blue" for row in shown]
        bars = panel.barh(names, [row.rate for row in shown], color=colors)
        panel.bar_label(bars, [f"{row.rate:,.0f}" for row in shown], padding=3)
        panel.set_title(f"{medium}: images per second of the whole process")
        panel.margins(x=0.15)
    figure.savefig(path)
    plt.close(figure)
