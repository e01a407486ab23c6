"""Runs tasks in joblib's loky processes and hands back each result as it is ready."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

import joblib
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from converter import osal
from converter.errors import ConversionError

Task = TypeVar("Task")
Result = TypeVar("Result")


_starting: list[Iterator[None]] = []


class WorkerDied(ConversionError):
    """A worker process ended without a word; which task it ran is not known."""


def default_workers() -> int:
    """Returns the number of CPUs that this process may use (affinity and cgroups counted).

    On Windows it is 61 at most.
    """
    return min(int(joblib.cpu_count()), osal.MOST_WORKERS)


def run(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result]:
    """Yields results in the order in which they are ready; tasks are taken as they are needed.

    One worker is a process of its own too, so that an image that ends its decoder does not end
    the command: joblib runs a pool of one in the calling process, so a pool of two is asked for
    and given one task at a time.

    Args:
        function: a module-level function.
        tasks: its arguments.
        workers: how many tasks run at once.

    Raises:
        WorkerDied: a worker was killed or crashed.
        Exception: what a task raised.
    """
    try:
        _await_start()
        yield from _begun(function, tasks, workers)
    except BrokenProcessPool as error:
        raise WorkerDied(
            f"a worker process ended unexpectedly: {str(error).splitlines()[0]} Too little memory "
            "is the usual cause; run again with fewer --workers."
        ) from error
    except SystemExit as error:  # a task that called sys.exit must not choose this exit code
        raise WorkerDied(f"a task ended its process with code {error.code}") from error


def _begun(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[Result]:
    workers = min(workers, osal.MOST_WORKERS)
    with osal.interrupts_held():
        results = joblib.Parallel(
            n_jobs=max(2, workers),
            backend="loky",
            return_as="generator_unordered",
            pre_dispatch=1 if workers == 1 else 2 * workers,
            batch_size=1,
            max_nbytes=None,
            initializer=osal.begin_worker,
            initargs=(os.getpid(),),
        )(joblib.delayed(function)(task) for task in tasks)
    return cast("Iterator[Result]", results)


def start(get_ready: Callable[[int], None], workers: int) -> None:
    """Starts the workers and goes on, so that their start passes beside what comes next.

    Args:
        get_ready: a module-level function that imports what the tasks will need.
        workers: as for `run`, which waits for the start.
    """
    _starting.append(_begun(get_ready, range(workers), workers))


def _await_start() -> None:
    while _starting:
        for _ in _starting.pop():
            pass


def shut_down() -> None:
    """Ends all workers and waits until they are gone, whatever they were doing.

    Workers that have not started yet are waited for: loky trips over their end.
    """
    with contextlib.suppress(BrokenProcessPool):
        _await_start()
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
