"""The demo: makes a miniature ImageNet, converts it, loads it with plain `tfds.load`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from converter import pool
from converter.conversion import convert
from converter.demo import DemoSize, make_archives
from converter.errors import OutputError, printable
from converter.imagenet import DATASET, OFFICIAL_ARCHIVES, wnids
from converter.options import StrPath, absolute
from converter.output import command_line
from converter.progress import Progress, duration
from converter.quiet import quiet_tensorflow
from converter.report import Report
from converter.sources.find import manual_folder

DEFAULT_FOLDER = "imagenet-demo"
_SHOWN = 3


def run_demo(out: StrPath | None, workers: int | None, progress: Progress) -> str:
    """Makes archives, converts them through the very same code, and loads the result.

    Args:
        out: the folder for archives and dataset; by default `imagenet-demo` in the current one.
        workers: processes; by default one per CPU that this process may use.
        progress: what shows the steps.

    Returns:
        What a person would want to see.

    Raises:
        OutputError: the folder holds archives or a dataset already.
        ConversionError: see `convert`.
    """
    folder = demo_folder(out)
    archives = manual_folder(folder)
    refuse_occupied(folder, archives)
    began = time.monotonic()
    progress.say("Making a miniature ImageNet: 1,000 classes of a few images each ...")
    made = make_archives(archives, DemoSize(), workers=workers or pool.default_workers())
    pool.shut_down()
    making = time.monotonic() - began
    report = convert(archives, folder, workers=workers, allow_incomplete=True, progress=progress)
    with quiet_tensorflow():
        loaded = _load(report)
    return "\n".join(
        (
            f"Made {made.images:,} images ({made.bytes:,} bytes) in "
            f"{duration(making)}: {printable(str(archives))}",
            "",
            str(replace(report, findings=())),  # of course most of ImageNet is missing
            "",
            loaded,
            "",
            f"All of it took {duration(time.monotonic() - began)}. The folder "
            f"{printable(str(folder))} can be deleted.",
            f"Now your own archives: {command_line('--source', 'FOLDER', '--out', 'DIR')}",
        )
    )


def demo_folder(out: StrPath | None) -> Path:
    """Returns where the demo goes: by default `imagenet-demo` in the current folder."""
    return absolute(DEFAULT_FOLDER if out is None else out)


def refuse_occupied(folder: Path, archives: Path) -> None:
    """Raises where a demo would stand beside real data.

    Raises:
        OutputError: names what is there.
    """
    taken = [archives / archive.name for archive in OFFICIAL_ARCHIVES] + [folder / DATASET]
    for path in taken:
        if path.exists():
            raise OutputError(
                f"{printable(str(path))} exists already; choose an empty folder with --out"
            )


def _load(report: Report) -> str:
    """Returns what plain `tfds.load` finds in the dataset."""
    import tensorflow_datasets as tfds

    lines = [f">>> {report.load_line}"]
    for split in report.splits:
        skip = {"image": tfds.decode.SkipDecoding()}
        counted = tfds.load(DATASET, split=split, data_dir=report.data_dir, decoders=skip)
        lines.append(f"{split}: {sum(1 for _ in counted):,} records read back")
        shown = tfds.load(DATASET, split=f"{split}[:{_SHOWN}]", data_dir=report.data_dir)
        for example in shown.as_numpy_iterator():
            label = int(example["label"])
            wnid = wnids()[label] if label >= 0 else "no label"
            shape = "x".join(str(length) for length in example["image"].shape)
            lines.append(f"    {example['file_name'].decode()}: {shape}, label {label} ({wnid})")
    return "\n".join(lines)
