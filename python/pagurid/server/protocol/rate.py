"""How many frames a client may send: a bucket that refills steadily."""

from __future__ import annotations

__all__ = ["MessageRate"]


class MessageRate:
    """`burst` frames at once, `per_second` in the long run."""

    def __init__(self, now: float, *, per_second: float = 100.0, burst: float = 1000.0) -> None:
        self.per_second = per_second
        self._burst = burst
        self._allowance = burst
        self._at = now

    def allows(self, now: float) -> bool:
        """Counts one frame; False if that is one too many."""
        self._allowance = min(self._burst, self._allowance + (now - self._at) * self.per_second)
        self._at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True
