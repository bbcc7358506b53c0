"""A progress bar for loading that shows only where someone watches and only when it takes a while.

Must not know: what is loaded.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["track"]

T = TypeVar("T")

_PATIENCE_S = 1.0


def track(items: Iterable[T], *, title: str, weight: Callable[[T], int]) -> Iterator[T]:
    """Yields the items; on a terminal a bar appears once they have taken a second.

    `weight` tells how much work an item is.
    """
    everything = list(items)
    if not sys.stderr.isatty():
        yield from everything
        return
    total = sum(map(weight, everything))
    done = 0
    begin = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(title, total=total)
    try:
        for item in everything:
            yield item
            done += weight(item)
            if not progress.live.is_started and time.monotonic() - begin > _PATIENCE_S:
                progress.start()
            progress.update(task, completed=done)
    finally:
        progress.stop()
