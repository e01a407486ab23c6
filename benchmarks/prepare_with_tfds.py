"""The usual way, as a process of its own: `prepare_with_tfds.py ARCHIVES DATA_DIR`."""

from __future__ import annotations

import sys


def main(archives: str, data_dir: str) -> None:
    """Runs TFDS's own `download_and_prepare`."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    builder = tfds.builder("imagenet2012", data_dir=data_dir)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=archives))


if __name__ == "__main__":
    main(*sys.argv[1:])
