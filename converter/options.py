"""The arguments of a conversion, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converter import osal
from converter.errors import UsageError
from converter.imagenet import EXPECTED_SPLITS, SPLITS
from converter.io_choice import IO
from converter.plan import ShardLimits
from converter.pool import default_workers
from converter.proof import DIGEST
from converter.shards import ON_CORRUPT, VALIDATE_LEVELS
from converter.sources.stream import STDIN

StrPath = str | os.PathLike[str]


def default_out() -> Path:
    """Returns the data_dir that TFDS uses when none is named."""
    return Path(os.environ.get("TFDS_DATA_DIR") or Path.home() / "tensorflow_datasets")


def absolute(path: StrPath) -> Path:
    """Returns the absolute path, `~` expanded, links left as they are.

    Raises:
        UsageError: this system would take the path for something else.
    """
    if refusal := osal.name_refusal(os.fspath(path)):
        raise UsageError(refusal)
    return Path(os.path.abspath(os.path.expanduser(path)))


def named_splits(splits: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns the names of splits; a string holds one, or several between commas.

    Raises:
        UsageError: one does not exist, or stands there twice.
    """
    if splits is None:
        return None
    listed = splits.split(",") if isinstance(splits, str) else splits
    names = tuple(str(split).strip() for split in listed)
    if not names or len(names) != len(set(names)) or not set(names) <= set(SPLITS):
        raise UsageError(
            f"splits (--splits) must be some of {','.join(SPLITS)}, each once, "
            f"not {','.join(names)!r}{_resembling(names)}"
        )
    return names


def _resembling(splits: Sequence[str]) -> str:
    """Returns the splits that are meant, as a question; nothing where that is not plain."""
    meant = [[known for known in SPLITS if split and known.startswith(split)] for split in splits]
    if not all(len(found) == 1 for found in meant):
        return ""
    return f"; is {','.join(found[0] for found in meant)} meant?"


@dataclass(frozen=True)
class Options:
    """The arguments of `convert`; see there. `make` fills in what depends on the machine.

    Raises:
        UsageError: names the argument and the value.
    """

    source: tuple[Path, ...]
    out: Path
    workers: int
    splits: tuple[str, ...] | None
    validate: str
    on_corrupt: str
    allow_incomplete: bool
    restart: bool
    verify_resume: bool
    checksum: bool
    limits: ShardLimits
    io: str
    staging: Path | None
    named: tuple[tuple[str, str], ...]

    @classmethod
    def make(
        cls,
        source: StrPath | Sequence[StrPath] | None,
        out: StrPath | None,
        workers: int | None,
        splits: str | Sequence[str] | None,
        limits: ShardLimits | None,
        staging: StrPath | None = None,
        named: Mapping[str, StrPath | None] | None = None,
        **plain: Any,
    ) -> Options:
        """Returns checked options.

        Raises:
            UsageError: an argument is out of range.
        """
        if source is None:
            source = ()
        elif isinstance(source, (str, os.PathLike)):
            source = (source,)
        return cls(
            source=tuple(absolute(path) for path in source),
            out=absolute(default_out() if out is None else out),
            workers=default_workers() if workers is None else workers,
            splits=named_splits(splits),
            limits=limits or ShardLimits(),
            staging=None if staging is None else absolute(staging),
            named=tuple(
                (split, STDIN if os.fspath(path) == "-" else str(absolute(path)))
                for split, path in (named or {}).items()
                if path is not None
            ),
            **plain,
        )

    def __post_init__(self) -> None:
        if not isinstance(self.workers, int) or self.workers < 1:
            raise UsageError(f"workers must be a number from 1, not {self.workers!r}")
        for field, allowed in (
            ("validate", (*VALIDATE_LEVELS, DIGEST)),
            ("on_corrupt", ON_CORRUPT),
            ("io", IO),
        ):
            if (value := getattr(self, field)) not in allowed:
                raise UsageError(f"{field} must be one of {', '.join(allowed)}, not {value!r}")
        if [path for _, path in self.named].count(STDIN) > 1:
            raise UsageError("standard input (-) can be one split only")

    @property
    def expected_splits(self) -> tuple[str, ...]:
        """The splits whose absence is a finding."""
        return EXPECTED_SPLITS if self.splits is None else self.splits

    def reported(self) -> dict[str, Any]:
        """Returns the options that bear on the result, for the report."""
        return {
            "splits": self.splits,
            "validate": self.validate,
            "on_corrupt": self.on_corrupt,
            "allow_incomplete": self.allow_incomplete,
            "workers": self.workers,
        }
