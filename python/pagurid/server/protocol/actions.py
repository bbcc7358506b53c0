"""What a session wants done, and what it is told once: plain data.

Must not know: how any of it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pagurid.server.protocol.close_codes import CloseCode
    from pagurid.server.protocol.events import Event
    from pagurid.server.protocol.messages import Generate

__all__ = ["Action", "CancelGeneration", "Close", "Send", "SessionSettings", "StartGeneration"]


@dataclass(frozen=True, slots=True)
class Send:
    """Say this to the client."""

    event: Event


@dataclass(frozen=True, slots=True)
class Close:
    """End the socket with this code."""

    code: CloseCode
    reason: str


@dataclass(frozen=True, slots=True)
class StartGeneration:
    """Ask the engine; answer with `Session.accepted` or `Session.failed`."""

    generate: Generate


@dataclass(frozen=True, slots=True)
class CancelGeneration:
    """Ask the engine to stop; its end comes as `Session.finished`."""

    id: str


Action: TypeAlias = "Send | Close | StartGeneration | CancelGeneration"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What does not change while the server lives."""

    epoch: str
    server_version: str
    models: Mapping[str, int]
    """Served model → its context length in tokens."""
    max_streams: int = 64
    max_frame_bytes: int = 1 << 20
    heartbeat_s: float = 20.0
    hello_timeout_s: float = 5.0
    check_token: Callable[[str | None], bool] = lambda token: True
