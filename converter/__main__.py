"""`python -m converter`: the same as the command `imagenet-convert`."""

from __future__ import annotations

from converter.cli import main

if __name__ == "__main__":
    main()
