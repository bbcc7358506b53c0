"""What the server says in pagurid.v1: plain dicts, built in one place.

Owns: field names and their order. Must not know: sockets, the engine, sequence numbers' origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pagurid.errors import PaguridError

__all__ = ["Event", "encode", "error_event"]

Event = dict[str, Any]

_encoder = msgspec.json.Encoder()


def encode(event: Event) -> str:
    """The text frame of an event."""
    return _encoder.encode(event).decode()


def error_event(error: PaguridError, *, id: str | None = None, seq: int | None = None) -> Event:
    """An `error` frame; with an id it ends that generation."""
    event: Event = {
        "type": "error",
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "retry_after_ms": error.retry_after_ms,
        "id": id,
        "seq": seq,
        "param": error.param,
        "details": error.details,
    }
    return {name: value for name, value in event.items() if value is not None}
