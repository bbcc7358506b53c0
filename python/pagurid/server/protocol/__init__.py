"""pagurid.v1 as a sans-I/O state machine: `Session` and what it takes and gives."""

from pagurid.server.protocol.actions import (
    Action,
    CancelGeneration,
    Close,
    Send,
    SessionSettings,
    StartGeneration,
)
from pagurid.server.protocol.close_codes import CloseCode
from pagurid.server.protocol.events import Event, encode, error_event
from pagurid.server.protocol.messages import Generate
from pagurid.server.protocol.session import Session

__all__ = [
    "Action",
    "CancelGeneration",
    "Close",
    "CloseCode",
    "Event",
    "Generate",
    "Send",
    "Session",
    "SessionSettings",
    "StartGeneration",
    "encode",
    "error_event",
]
