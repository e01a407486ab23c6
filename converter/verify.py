"""Reads a published dataset back and judges it; works on datasets that TFDS wrote, too."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from converter import pool
from converter.errors import CorruptImagesError, OutputError, VerificationError, printable
from converter.imagenet import DATASET, EXAMPLES, PUBLISHED_NUM_BYTES, wnids
from converter.journal import JOURNAL, Journal
from converter.options import StrPath, absolute, default_out
from converter.output import WORK_PREFIX
from converter.plan import record_key, shard_boundaries
from converter.progress import Progress, duration
from converter.published import (
    CHECKSUMS,
    FEATURES,
    INFO,
    METADATA,
    REPORT_NAME,
    PublishedSplit,
    features_problem,
    read_checksums,
    read_info,
    report_is_unaltered,
    skipped_images,
)
from converter.readback import ReadTask, ShardFacts, read_shard
from converter.work import file_sha256

_PROBLEMS_SHOWN: Final = 20
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True)
class SplitVerdict:
    """What was read back of one split.

    Attributes:
        records: records found.
        shards: number of files.
        num_bytes: serialized examples in bytes, without framing.
    """

    records: int
    shards: int
    num_bytes: int


@dataclass(frozen=True)
class Verdict:
    """What `verify` found.

    Attributes:
        folder: the dataset's version folder.
        splits: what was read, by split.
        problems: what contradicts the metadata, the names or the checksums.
        corrupt: images that do not decode (with `decode` only).
        leftovers: what killed runs left beside the dataset, with sizes in bytes.
        decoded: whether every image was decoded.
        checksums: whether there were checksums to compare with.
        seconds: how long it took.
    """

    folder: str
    splits: dict[str, SplitVerdict]
    problems: tuple[str, ...]
    corrupt: tuple[str, ...]
    leftovers: dict[str, int]
    decoded: bool
    checksums: bool
    seconds: float

    @property
    def official(self) -> bool:
        """Whether counts and numBytes are those of the complete ImageNet 2012.

        Of the test split only the count is known.
        """
        return all(split in self.splits for split in PUBLISHED_NUM_BYTES) and all(
            found.records == EXAMPLES[split]
            and found.num_bytes == PUBLISHED_NUM_BYTES.get(split, found.num_bytes)
            for split, found in self.splits.items()
        )

    def require_sound(self) -> None:
        """Raises what is wrong.

        Raises:
            VerificationError: the dataset is not what its metadata says.
            CorruptImagesError: only images are.
        """
        if self.problems:
            raise VerificationError(
                f"{printable(self.folder)} is not sound, {len(self.problems):,} problems:\n"
                f"{_indented(self.problems)}\nConvert again with --restart."
            )
        if self.corrupt:
            raise CorruptImagesError(
                f"{len(self.corrupt):,} images in {printable(self.folder)} do not decode:\n"
                f"{_indented(self.corrupt)}"
            )

    def __str__(self) -> str:
        lines = [
            f"{name:<11} {split.records:>9,} records, {split.shards:,} "
            f"{'shard' if split.shards == 1 else 'shards'}, numBytes {split.num_bytes:,}"
            for name, split in self.splits.items()
        ]
        checked = "CRCs, counts, order, labels" + (", checksums" if self.checksums else "")
        checked += ", every image decoded" if self.decoded else ""
        lines.append(f"Sound: {checked} ({duration(self.seconds)})")
        negation = "" if self.official else "not "
        lines.append(
            f"This is {negation}the complete official ImageNet 2012 (counts and numBytes)."
        )
        lines += [
            f"    {name}: {self.splits[name].records if name in self.splits else 0:,} of {whole:,}"
            for name, whole in EXAMPLES.items()
            if (name in self.splits and self.splits[name].records != whole)
            or (name not in self.splits and name in PUBLISHED_NUM_BYTES)
        ]
        for path, size in self.leftovers.items():
            if Path(path).name.startswith(WORK_PREFIX) and Path(path, JOURNAL).is_file():
                lines.append(f"Beside it, {_unfinished(Path(path))}")
            else:
                lines.append(f"Left over by a killed run: {printable(path)} ({size:,} bytes)")
        return "\n".join(lines)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def verify(
    folder: StrPath | None = None,
    *,
    decode: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Reads every record of a dataset back.

    Args:
        folder: the data_dir, the dataset's folder or the version's folder; by default the
            data_dir that TFDS uses.
        decode: decode every image as well.
        workers: processes; by default one per CPU that this process may use.
        progress: what shows how far it is.

    Returns:
        What was found; nothing is raised for what is wrong, see `Verdict.require_sound`.

    Raises:
        VerificationError: there is no dataset, or its metadata cannot be read.
    """
    began = time.monotonic()
    path = find_dataset(absolute(default_out() if folder is None else folder))
    splits = read_info(path)
    sums = read_checksums(path)
    tasks = [
        ReadTask(str(path / name), split, (sums or {}).get(name), decode)
        for split, info in splits.items()
        for name in info.shard_names
    ]
    facts: dict[str, ShardFacts] = {}
    try:
        with (progress or Progress()).step("Verify", len(tasks), "shards") as step:
            for shard in pool.run(read_shard, tasks, workers or pool.default_workers()):
                facts[shard.name] = shard
                step.advance(1, shard.size)
    finally:
        pool.shut_down()
    problems = _judge_files(path, set(facts), sums)
    verdicts = {}
    for split, info in splits.items():
        shards = [facts[name] for name in info.shard_names]
        problems += _judge_split(split, info, shards, _skipped_keys(path, split))
        verdicts[split] = SplitVerdict(
            sum(shard.records for shard in shards),
            len(shards),
            sum(shard.num_bytes for shard in shards),
        )
    return Verdict(
        folder=str(path),
        splits=verdicts,
        problems=tuple(problems),
        corrupt=tuple(image for name in sorted(facts) for image in facts[name].corrupt),
        leftovers=_leftovers(path.parent),
        decoded=decode,
        checksums=sums is not None,
        seconds=round(time.monotonic() - began, 3),
    )


def digests_of(
    folder: Path, splits: Mapping[str, PublishedSplit], workers: int, progress: Progress
) -> dict[str, str]:
    """Returns the sha256 of the shards of a dataset that others join.

    Those in its SHA256SUMS are taken from there. What TFDS wrote has none: it is read and checked,
    so that damage never becomes what is right.

    Args:
        folder: the version's folder.
        splits: its splits.
        workers: processes.
        progress: shows how far it is.

    Raises:
        OutputError: a shard is not sound.
    """
    noted = read_checksums(folder) or {}
    names = {name: split.split for split in splits.values() for name in split.shard_names}
    tasks = [
        ReadTask(str(folder / name), split, None, decode=False)
        for name, split in names.items()
        if name not in noted
    ]
    problems = []
    if tasks:
        with progress.step("Verify", len(tasks), "shards") as step:
            for facts in pool.run(read_shard, tasks, workers):
                noted[facts.name] = facts.sha256
                problems += facts.problems
                step.advance(1, facts.size)
        pool.shut_down()
    if problems:
        raise OutputError(
            f"the dataset in {printable(str(folder))} is not sound, so nothing joins it:\n"
            f"{_indented(problems[:_PROBLEMS_SHOWN])}\nReplace it with --restart."
        )
    return {name: noted[name] for name in names}


def find_dataset(folder: Path) -> Path:
    """Returns the version's folder for a data_dir, a dataset's folder or itself.

    Raises:
        VerificationError: there is none.
    """
    for parent in (folder / DATASET, folder):
        if (parent / INFO).is_file():
            return parent
        if parent.is_dir():
            versions = [p for p in parent.iterdir() if _VERSION.fullmatch(p.name) and p.is_dir()]
            if versions:
                return max(versions, key=lambda p: [int(part) for part in p.name.split(".")])
    raise VerificationError(_no_dataset(folder))


def _no_dataset(folder: Path) -> str:
    shown = printable(str(folder))
    wanted = "Give a data_dir, as tfds.load takes it, or the folder of a dataset."
    if not folder.exists():
        return f"{shown} does not exist. {wanted}"
    if not folder.is_dir():
        return f"{shown} is a file. {wanted}"
    places = [folder, *folder.parents[:2], *folder.glob("*"), *folder.glob(f"{DATASET}/*")]
    for place in places:
        if place.name.startswith(WORK_PREFIX) and (place / JOURNAL).is_file():
            return f"no {DATASET} dataset in {shown} yet: {_unfinished(place)}"
    return f"no {DATASET} dataset in {shown}. {wanted}"


def _unfinished(work: Path) -> str:
    shards = sum(shard.written for shard in Journal(work).shards.values())
    return (
        f"a conversion is unfinished in {printable(str(work))} ({shards:,} shards are written). "
        "Run the same convert command again to continue it, or delete that folder to give it up."
    )


def _judge_files(path: Path, shards: set[str], sums: dict[str, str] | None) -> list[str]:
    problems = []
    known = shards | set(METADATA) | {CHECKSUMS, REPORT_NAME}
    entries = {entry.name: entry.is_file() for entry in path.iterdir()}
    present = {name for name, is_file in entries.items() if is_file}
    problems += [
        printable(f"{name}: does not belong here") for name in sorted(set(entries) - known)
    ]
    for name in METADATA:
        if name not in present:
            problems.append(f"{name}: {'no regular file' if name in entries else 'missing'}")
    labels = path / "label.labels.txt"
    if labels.is_file() and labels.read_bytes().split() != [w.encode() for w in wnids()]:
        problems.append("label.labels.txt: its labels are not those of ImageNet 2012")
    if FEATURES in present and (problem := features_problem(path)):
        problems.append(f"{FEATURES}: {problem}")
    if not report_is_unaltered(path):
        problems.append(f"{REPORT_NAME}: it is not as it was written")
    if sums is not None:
        if not (path / CHECKSUMS).read_bytes().endswith(b"\n"):
            problems.append(f"{CHECKSUMS}: its last line is cut")
        listed = shards | set(METADATA)
        problems += [f"{name}: not in {CHECKSUMS}" for name in sorted(listed - set(sums))]
        problems += [
            printable(f"{CHECKSUMS}: names {name}, which does not belong to the dataset")
            for name in sorted(set(sums) - listed)
        ]
        problems += [
            f"{name}: its sha256 is not the one in {CHECKSUMS}"
            for name in METADATA
            if name in present and name in sums and file_sha256(path / name) != sums[name]
        ]
    return problems


def _skipped_keys(path: Path, split: str) -> list[bytes]:
    """Returns the keys of images that the converter left out as corrupt, ascending."""
    return sorted(record_key(split, name.encode()) for name in skipped_images(path, split))


def _judge_split(
    split: str, info: PublishedSplit, shards: Sequence[ShardFacts], skipped: list[bytes]
) -> list[str]:
    problems = [problem for shard in shards for problem in shard.problems]
    for shard, length in zip(shards, info.lengths, strict=True):
        if shard.records != length:
            problems.append(f"{shard.name}: {shard.records:,} records where {INFO} says {length:,}")
    num_bytes = sum(shard.num_bytes for shard in shards)
    if num_bytes != info.num_bytes:
        problems.append(f"{split}: numBytes is {num_bytes:,} where {INFO} says {info.num_bytes:,}")
    filled = [shard for shard in shards if shard.records]
    for before, after in itertools.pairwise(filled):
        if before.last >= after.first:
            problems.append(f"{after.name}: its records should stand before those of {before.name}")
    return problems + _judge_boundaries(shards, skipped)


def _judge_boundaries(shards: Sequence[ShardFacts], skipped: list[bytes]) -> list[str]:
    total = sum(shard.records for shard in shards) + len(skipped)
    ends = shard_boundaries(total, len(shards))
    left = list(skipped)
    for shard, start, end in zip(shards, (0, *ends), ends, strict=False):
        absent = end - start - shard.records
        if absent < 0 or any(key < shard.last for key in left[absent:]):
            return [f"{shard.name}: {shard.records:,} records, which is not how TFDS cuts shards"]
        del left[:absent]
    return []


def _leftovers(folder: Path) -> dict[str, int]:
    return {
        str(path): sum(
            os.path.getsize(os.path.join(place, name))
            for place, _, names in os.walk(path)
            for name in names
        )
        for path in sorted(folder.glob("*incomplete*"))
        if path.is_dir()
    }
