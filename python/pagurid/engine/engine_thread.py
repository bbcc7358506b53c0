"""The thread that steps an engine while others submit to it.

Owns: the step loop, its end, and telling the truth about its health.
Invariant: the owner is woken at most once per step, never per token.
Must not know: event loops, transports.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagurid.engine.engine import Engine

__all__ = ["EngineHealth", "EngineThread"]

PARK_S = 1.0

log = logging.getLogger("pagurid.engine")


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """The truth about an engine."""

    alive: bool
    """Its thread runs."""
    last_error: str | None
    """Of the last step that failed, or what the thread died of."""
    consecutive_failed_steps: int
    """0 as soon as a step succeeds."""


class EngineThread:
    """Calls `on_news` from its own thread when outputs are ready, and when it ends."""

    def __init__(self, engine: Engine, on_news: Callable[[], None]) -> None:
        self._engine = engine
        self._on_news = on_news
        self._stopping = False
        self._death: str | None = None
        self._thread = threading.Thread(target=self._run, name="pagurid-engine", daemon=True)
        self._thread.start()

    def health(self) -> EngineHealth:
        """Now."""
        return EngineHealth(
            alive=self._thread.is_alive() and self._death is None,
            last_error=self._death or self._engine.last_error,
            consecutive_failed_steps=self._engine.scheduler.stats().consecutive_failed_steps,
        )

    @property
    def death(self) -> str | None:
        """What the thread died of; None while it lives or after a clean stop."""
        return self._death

    def stop(self) -> None:
        """Ends the loop after the running step, and waits for that."""
        self._stopping = True
        self._engine.scheduler.wake()
        self._thread.join()

    def _run(self) -> None:
        scheduler = self._engine.scheduler
        try:
            while not self._stopping:
                if not scheduler.wait_for_work(PARK_S):
                    continue
                self._engine.step()
                if scheduler.has_ready():
                    self._on_news()
        except BaseException as error:
            log.exception("the engine stopped")
            self._death = f"the engine stopped: {type(error).__name__}: {error}"
            scheduler.close()
            self._on_news()
