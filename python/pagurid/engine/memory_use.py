"""What an engine's memory goes to.

Must not know: what it is used for.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagurid.memory_size import format_bytes

__all__ = ["MemoryUse"]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """In bytes."""

    weights_bytes: int
    """Parameters, packed or not, mapped ones included."""
    kv_pool_bytes: int
    """Of the KV pool at its fullest: it takes memory only as its blocks are first written."""
    process_peak_bytes: int | None
    """The most that the process had in memory at once, mapped files included; None where nobody tells."""

    def __str__(self) -> str:
        peak = "unknown" if self.process_peak_bytes is None else format_bytes(self.process_peak_bytes)
        return (
            f"weights {format_bytes(self.weights_bytes)}, KV pool {format_bytes(self.kv_pool_bytes)}, "
            f"peak of the process so far {peak}"
        )
