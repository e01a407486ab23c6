"""What copying alone costs, as a process of its own: `copy_limit.py TARGET FILES...`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def main(target: str, files: list[str]) -> None:
    """Copies with `cp` where there is one, and waits until the bytes are on the disk."""
    os.makedirs(target)
    for file in files:
        copy = os.path.join(target, os.path.basename(file))
        if shutil.which("cp"):
            subprocess.run(["cp", file, copy], check=True)  # noqa: S607
        else:
            shutil.copyfile(file, copy)
        with open(copy, "r+b") as copied:
            os.fsync(copied.fileno())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
