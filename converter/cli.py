"""The command line: options, help, exit codes. What happens is decided elsewhere."""

from __future__ import annotations

import contextlib
import enum
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter import osal
from converter.errors import ConversionError, Interrupted, OutputError, Terminated, printable

if TYPE_CHECKING:
    from converter.inspect import Inspection
    from converter.progress import Progress
    from converter.report import Report
    from converter.verify import Verdict

app = typer.Typer(
    name="imagenet-convert",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Validate(str, enum.Enum):
    """How an image is judged."""

    decode = "decode"
    header = "header"
    off = "off"
    digest = "digest"


class Io(str, enum.Enum):
    """How the sources are read."""

    auto = "auto"
    direct = "direct"
    staged = "staged"


class OnCorrupt(str, enum.Enum):
    """What becomes of a corrupt image."""

    fail = "fail"
    skip = "skip"
    keep = "keep"


Source = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="An archive, or a folder of archives, class folders or images; repeatable. Default: "
        "OUT/downloads/manual, then the current folder.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="TFDS's data_dir. Default: $TFDS_DATA_DIR, else ~/tensorflow_datasets.",
        show_default=False,
    ),
]
DemoOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="An empty folder for archives and dataset. Default: imagenet-demo in the current one.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Processes. Default: one per usable CPU.", show_default=False
    ),
]
Splits = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Of train,validation,test. Default: train and validation, and test if found.",
        show_default=False,
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        print(f"imagenet-convert {importlib.metadata.version('imagenet-convert')}")
        raise typer.Exit


Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print errors only.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", metavar="", help="Show a traceback with an error.")
]


def _one_source(split: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="PATH|-",
        help=f"One source of the {split} split; - is standard input.",
        show_default=False,
    )
    return option


@app.callback(invoke_without_command=True)
def convert_command(
    context: typer.Context,
    source: Source = None,
    out: Out = None,
    workers: Workers = None,
    splits: Splits = None,
    validate: Annotated[
        Validate,
        typer.Option(
            help="Decode each image, read its header only, or neither; digest: decode only what "
            "is not the official archive byte for byte."
        ),
    ] = Validate.decode,
    on_corrupt: Annotated[
        OnCorrupt,
        typer.Option(help="Publish nothing, leave corrupt images out, or store them as they are."),
    ] = OnCorrupt.fail,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", metavar="", help="Accept absent images; never a damaged archive."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Index and plan, print, write nothing.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            metavar="",
            help="Discard earlier work; replace an existing dataset once the new one is complete.",
        ),
    ] = False,
    verify_resume: Annotated[
        bool,
        typer.Option(
            "--verify-resume", metavar="", help="Check every finished shard's sha256 on resuming."
        ),
    ] = False,
    checksum: Annotated[
        bool,
        typer.Option(
            "--checksum", metavar="", help="Compare the archives with the official digests."
        ),
    ] = False,
    train: Annotated[str | None, _one_source("train")] = None,
    val: Annotated[str | None, _one_source("validation")] = None,
    test: Annotated[str | None, _one_source("test")] = None,
    io: Annotated[
        Io,
        typer.Option(
            help="Read images at random (direct), or each tar once from start to end, laying its "
            "images aside (staged). auto: staged for pipes, compressed tars and spinning disks."
        ),
    ] = Io.auto,
    staging: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where images are laid aside. Default: the work folder.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Also append what is shown to a file.", show_default=False
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Convert the ImageNet 2012 archives to what tfds.load("imagenet2012") finds."""
    if context.invoked_subcommand:
        return

    def run(progress: Progress) -> Report:
        from converter.conversion import convert

        return convert(
            source,
            out,
            workers=workers,
            splits=splits,
            validate=validate.value,
            on_corrupt=on_corrupt.value,
            allow_incomplete=allow_incomplete,
            dry_run=dry_run,
            restart=restart,
            verify_resume=verify_resume,
            checksum=checksum,
            train=train,
            validation=val,
            test=test,
            io=io.value,
            staging=staging,
            progress=progress,
        )

    _carry_out(run, quiet, verbose, log_file)


@app.command("demo")
def demo_command(
    out: DemoOut = None,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Make a miniature ImageNet, convert it, load it with plain tfds.load."""

    def run(progress: Progress) -> str:
        from converter.demo_run import demo_folder, run_demo

        said = run_demo(out, workers, progress)
        if quiet:  # it leaves a folder of a size that wants to be found again
            progress.result(printable(str(demo_folder(out))))
        return said

    _carry_out(run, quiet, verbose, None)


@app.command("inspect")
def inspect_command(
    source: Source = None,
    out: Out = None,
    workers: Workers = None,
    splits: Splits = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say what a source holds and what is wrong with it; write nothing."""

    def run(progress: Progress) -> Inspection:
        from converter.inspect import inspect

        inspection = inspect(
            source or (),
            out,
            workers=workers,
            splits=splits,
            progress=progress,
        )
        if json or not quiet:
            progress.result(inspection.to_json() if json else str(inspection))
        inspection.require_sound()
        return inspection

    _carry_out(run, quiet, verbose, None, show=False)


@app.command("verify")
def verify_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A data_dir, or a dataset's folder. Default: $TFDS_DATA_DIR, else "
            "~/tensorflow_datasets.",
            show_default=False,
        ),
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", metavar="", help="Decode every image, too.")
    ] = False,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read a dataset back: CRCs, counts, order, labels, checksums; on request every pixel."""

    def run(progress: Progress) -> Verdict:
        from converter.verify import verify

        verdict = verify(folder, decode=decode, workers=workers, progress=progress)
        verdict.require_sound()
        return verdict

    _carry_out(run, quiet, verbose, None)


def _carry_out(
    run: Callable[[Progress], object],
    quiet: bool,
    verbose: bool,
    log_file: Path | None,
    show: bool = True,
) -> None:
    """Runs one function of the API; its result goes to stdout, an error sets the exit code."""
    from converter.progress import Progress, open_progress

    progress = Progress()
    with contextlib.ExitStack() as stack:
        try:
            progress = stack.enter_context(open_progress(quiet, log_file))
            result = str(run(progress))
        except (ConversionError, Interrupted) as error:
            if verbose:
                traceback.print_exc()
            progress.fail(str(error))
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if error.filename is None or verbose:
                raise
            name = printable(str(error.filename))
            progress.fail(f"{name or 'the current folder'}: {error.strerror}")
            raise typer.Exit(OutputError.exit_code) from None
        if show:
            (progress.note if quiet else progress.result)(result)


def main() -> None:
    """Runs the command and exits with its code."""
    osal.open_closed_streams()
    with osal.stop_signals_raise(Interrupted, Terminated):
        try:
            app()
        except Interrupted as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        finally:
            osal.ignore_stop_signals()
