"""What a published dataset says of itself: splits, checksums, the report of its making."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from converter.errors import VerificationError, printable
from converter.imagenet import CLASSES, DATASET, SPLITS
from converter.plan import shard_filename

INFO: Final = "dataset_info.json"
FEATURES: Final = "features.json"
METADATA: Final = (INFO, FEATURES, "label.labels.txt")
CHECKSUMS: Final = "SHA256SUMS"
REPORT_NAME: Final = "conversion_report.json"
_TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_FEATURES: Final = {"file_name": "Text", "image": "Image", "label": "ClassLabel"}
_SEAL: Final = "sha256_of_the_above"


@dataclass(frozen=True)
class PublishedSplit:
    """A split as dataset_info.json describes it.

    Attributes:
        split: train, validation or test.
        lengths: records of each shard.
        num_bytes: serialized examples in bytes, without framing.
    """

    split: str
    lengths: tuple[int, ...]
    num_bytes: int

    @property
    def shard_names(self) -> list[str]:
        """The file names of the shards, in order."""
        count = len(self.lengths)
        return [shard_filename(self.split, shard, count) for shard in range(count)]


def read_info(folder: Path) -> dict[str, PublishedSplit]:
    """Returns the splits of the dataset in a version's folder.

    Raises:
        VerificationError: its dataset_info.json cannot be read, or is not that of ImageNet 2012.
    """
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
        splits = [_read_split(split) for split in info["splits"]]
        names = [split.split for split in splits]
        if info["name"] != DATASET or not splits or not set(names) <= set(SPLITS):
            raise ValueError("it is not that of ImageNet 2012")
        if len(set(names)) < len(names):
            raise ValueError("it has a split twice")
        if info["version"] != folder.name:
            raise ValueError(f"it is of version {info['version']}")
        if info.get("fileFormat", "tfrecord") != "tfrecord":
            raise ValueError(f"the format of its files is {info['fileFormat']}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerificationError(
            f"{printable(str(folder / INFO))} cannot be read: {printable(str(error))}"
        ) from error
    return {split.split: split for split in splits}


def _read_split(plain: dict[str, Any]) -> PublishedSplit:
    lengths = tuple(int(length) for length in plain["shardLengths"])
    if plain.get("filepathTemplate", _TEMPLATE) != _TEMPLATE:
        raise ValueError(f"its shards are named as {plain['filepathTemplate']}")
    if not lengths or min(lengths) < 0:
        raise ValueError("a shard has a negative number of records, or there is none")
    return PublishedSplit(plain["name"], lengths, int(plain["numBytes"]))


def features_problem(folder: Path) -> str | None:
    """Returns what is wrong with features.json, None where it describes the three features."""
    try:
        plain = json.loads((folder / FEATURES).read_text(encoding="utf-8"))
        found = {
            name: feature["pythonClassName"].rpartition(".")[2]
            for name, feature in plain["featuresDict"]["features"].items()
        }
        classes = int(plain["featuresDict"]["features"]["label"]["classLabel"]["numClasses"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"it cannot be read: {printable(str(error))}"
    if found != _FEATURES or classes != CLASSES:
        return "its features are not those of ImageNet 2012"
    return None


def read_checksums(folder: Path) -> dict[str, str] | None:
    """Returns the sha256 of each file in SHA256SUMS, None where there is no such file."""
    try:
        text = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VerificationError(f"{CHECKSUMS} cannot be read: {error.strerror}") from error
    lines = (line.partition("  ") for line in text.splitlines())
    return {name: digest for digest, _, name in lines}


def seal(text: str) -> str:
    """Returns the indented text of a JSON object with a last field, the sha256 of all before it.

    The report holds times, so it cannot stand in SHA256SUMS, which is the same for the same data.
    """
    return _sealed(text.removesuffix("\n}"))


def _sealed(body: str) -> str:
    return f'{body},\n  "{_SEAL}": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'


def report_is_unaltered(folder: Path) -> bool:
    """Returns whether the report beside the shards is as it was written; True without one."""
    try:
        data = (folder / REPORT_NAME).read_bytes()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    body = data.rpartition(b',\n  "%s": ' % _SEAL.encode())[0]
    return data == _sealed(body.decode("ascii", "replace")).encode()


def read_report(folder: Path) -> dict[str, Any] | None:
    """Returns the report beside the shards, None where there is none that can be read."""
    try:
        report = json.loads((folder / REPORT_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def skipped_images(folder: Path, split: str) -> Iterator[str]:
    """Yields the names of the images of a split that were left out as corrupt."""
    report = read_report(folder)
    while report:
        try:
            if report["options"]["on_corrupt"] == "skip":
                for image in report["corrupt"]:
                    if image["split"] == split:
                        yield str(image["file_name"])
            report = report.get("joined_to")
        except (KeyError, TypeError, AttributeError):
            return
