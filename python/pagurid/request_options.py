"""What a request's sender says of it, beside how its tokens are chosen: one frozen dataclass.

Must not know: the scheduler, transports.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RequestOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Which of them count depends on the engine's `scheduling_policy`."""

    priority: int = 0
    """Smaller is served first, under the `priority` policy."""
    tenant: str | None = None
    """Whose request it is: tenants get equal parts under the `fair` policy."""
    cache_salt: str | None = None
    """Computed prefixes are shared only with requests of the same salt."""
