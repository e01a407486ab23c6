"""What can go wrong, as exceptions that carry the exit code of the command.

Every message says what happened, where, and what to do next. Each class takes its message as
the only positional argument, because an exception with keyword-only arguments does not survive
the trip out of a joblib worker. Messages are made of ASCII: a cp932 console prints nothing else.
"""

from __future__ import annotations


class ConversionError(Exception):
    """The root of all errors that a person can act on.

    Attributes:
        exit_code: what the command returns to the shell for this class of error.
    """

    exit_code = 1


class UsageError(ConversionError):
    """The options contradict each other or name something that does not exist."""

    exit_code = 2


class SourceError(ConversionError):
    """The source is missing, damaged, incomplete or not ImageNet 2012."""

    exit_code = 3


class SourceReadError(SourceError):
    """The system could not read the source (I/O error, permission, vanished file)."""


class DamagedImageError(SourceError):
    """The bytes of one image are not those that were put into its archive."""


class SourceChangedError(SourceError):
    """A source is no longer the file that was indexed."""


class StagedFilesGoneError(SourceError):
    """Images are wanted whose staged files were freed, or deleted by somebody."""


class OutputError(ConversionError):
    """The output cannot be written: space, permission, an existing dataset."""

    exit_code = 4


class NoSpaceError(OutputError):
    """The output's file system has no room (bytes, inodes or quota)."""


class LockedError(OutputError):
    """Another run works on the same output."""


class ResumeError(OutputError):
    """The work folder belongs to another conversion than the one asked for."""


class CorruptImagesError(ConversionError):
    """Images do not decode and `--on-corrupt fail` is in force; nothing was published."""

    exit_code = 5


class VerificationError(ConversionError):
    """A published dataset is not what its metadata says."""

    exit_code = 3


class Interrupted(BaseException):
    """Ctrl-C; finished shards are kept and the same command continues.

    Like `KeyboardInterrupt` it is no `Exception`: libraries swallow those, some while they are
    imported.
    """

    exit_code = 130


class Terminated(Interrupted):
    """SIGTERM; as `Interrupted`, with the exit code of that signal."""

    exit_code = 143


def printable(text: str) -> str:
    """Returns the text with every character outside printable ASCII escaped.

    File names may hold anything, and terminals may not.
    """
    return "".join(
        ch if " " <= ch <= "~" else ch.encode("unicode_escape").decode("ascii") for ch in text
    )
