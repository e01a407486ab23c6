"""The operating-system layer: every call that differs between Linux, macOS and Windows.

Nothing else in this project asks which system it runs on.
"""

from converter.osal.console import open_closed_streams, quoted, set_time_command
from converter.osal.disks import inodes_exhausted, mount_of, rotational, same_device
from converter.osal.files import (
    append,
    begin_writeback,
    fsync_folder,
    remove,
    remove_folder,
    replace,
    status_of,
)
from converter.osal.names import length_refusal, name_refusal
from converter.osal.processes import (
    MOST_WORKERS,
    begin_worker,
    exit_if_orphaned,
    ignore_stop_signals,
    interrupts_held,
    stop_signals_raise,
)
from converter.osal.reading import RandomReader, SequentialReader, is_pipe

__all__ = [
    "MOST_WORKERS",
    "RandomReader",
    "SequentialReader",
    "append",
    "begin_worker",
    "begin_writeback",
    "exit_if_orphaned",
    "fsync_folder",
    "ignore_stop_signals",
    "inodes_exhausted",
    "interrupts_held",
    "is_pipe",
    "length_refusal",
    "mount_of",
    "name_refusal",
    "open_closed_streams",
    "quoted",
    "remove",
    "remove_folder",
    "replace",
    "rotational",
    "same_device",
    "set_time_command",
    "status_of",
    "stop_signals_raise",
]
