"""One client's conversation in pagurid.v1, without any I/O: frames and the clock go in, actions come out.

Owns: the order of the protocol (hello first, one hello, known types), which ids live, each id's gapless
`seq`, liveness, the message rate, how often `status` may be said.
Invariants: every accepted id gets `accepted` as seq 0 and ends with exactly one `done` or `error`; after that
nothing is said of it. Nothing is said before `ready`.
Must not know: sockets, threads, the engine. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagurid.errors import (
    IdInUse,
    InvalidRequest,
    Overloaded,
    PaguridError,
    RateLimited,
    StreamNotFound,
)
from pagurid.server.json_decoding import UnpairedSurrogate, decode_json
from pagurid.server.protocol.actions import CancelGeneration, Close, Send, StartGeneration
from pagurid.server.protocol.close_codes import CloseCode
from pagurid.server.protocol.events import Event, error_event
from pagurid.server.protocol.messages import (
    Cancel,
    Envelope,
    Hello,
    Ping,
    decode_generate,
    id_problem,
)
from pagurid.server.protocol.rate import MessageRate
from pagurid.server.request_checks import check_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pagurid.server.protocol.actions import Action, SessionSettings

__all__ = ["Session"]

PROTOCOL_VERSION = 1
STATUS_INTERVAL_S = 0.25


@dataclass(slots=True)
class _Stream:
    """What the client has been told of one generation."""

    next_seq: int = 0
    chars: int = 0
    last_event_at: float = 0.0
    last_status: Event = field(default_factory=dict)


class Session:
    """See the module's text. One object per socket."""

    def __init__(self, settings: SessionSettings, *, now: float, authorized: bool = False) -> None:
        self._settings = settings
        self._authorized = authorized
        self._opened_at = now
        self._last_received_at = now
        self._last_ping_at = now
        self._ready = False
        self._closed = False
        self._draining = False
        self._rate = MessageRate(now)
        self._streams: dict[str, _Stream] = {}
        self.token: str | None = None
        """What the client's hello has proved itself with, unless the handshake had."""

    @property
    def is_ready(self) -> bool:
        """Hello has been said and answered."""
        return self._ready

    @property
    def live_ids(self) -> frozenset[str]:
        """Generations that have not ended."""
        return frozenset(self._streams)

    # ── from the client ──────────────────────────────────────────────────────────────────────────

    def receive(self, frame: str | bytes, now: float) -> list[Action]:
        """Takes one frame of the client."""
        if self._closed:
            return []
        self._last_received_at = now
        if isinstance(frame, bytes):
            return self._close(CloseCode.BINARY_FRAME, "expected text frames, got a binary one")
        if len(frame.encode(errors="replace")) > self._settings.max_frame_bytes:
            return self._close(
                CloseCode.FRAME_TOO_LARGE, f"expected at most {self._settings.max_frame_bytes} bytes"
            )
        if not self._rate.allows(now):
            return self._close(
                CloseCode.MESSAGE_RATE, f"expected at most {self._rate.per_second:g} frames a second"
            )
        try:
            envelope = decode_json(frame, Envelope)
        except UnpairedSurrogate as error:
            content = json.loads(frame)
            if not self._ready or not isinstance(content, dict):
                return self._malformed(error)
            return [Send(self._refusal(error, content.get("id")))]
        except InvalidRequest as error:
            return self._malformed(error)
        if not self._ready:
            return self._first(envelope, frame)
        try:
            return self._dispatch(envelope, frame)
        except PaguridError as error:
            return [Send(self._refusal(error, envelope.id))]

    def _refusal(self, error: PaguridError, id: object) -> Event:
        """The error of a frame that began nothing; of its id's stream it is the first and last event."""
        if isinstance(id, str) and id_problem(id) is None and id not in self._streams:
            return error_event(error, id=id, seq=0)
        return error_event(error)

    def _malformed(self, error: InvalidRequest) -> list[Action]:
        return self._close(CloseCode.MALFORMED, f"expected a JSON object with a type: {error.message}"[:120])

    def _first(self, envelope: Envelope, frame: str) -> list[Action]:
        if envelope.type != "hello":
            return self._close(CloseCode.MALFORMED, f"expected hello first, got {envelope.type[:32]}")
        try:
            hello = decode_json(frame, Hello)
        except InvalidRequest as error:
            return self._close(CloseCode.MALFORMED, f"hello: {error.message[:100]}")
        if hello.protocol != PROTOCOL_VERSION:
            return self._close(
                CloseCode.PROTOCOL_VERSION, f"expected protocol {PROTOCOL_VERSION}, got {hello.protocol}"
            )
        if not self._authorized and not self._settings.check_token(hello.token):
            what = "no token" if hello.token is None else "a wrong one"
            return self._close(CloseCode.UNAUTHORIZED, f"expected a valid token, got {what}")
        if not self._authorized:
            self.token = hello.token
        self._ready = True
        return [Send(self._ready_event())]

    def _ready_event(self) -> Event:
        settings = self._settings
        return {
            "type": "ready",
            "protocol": PROTOCOL_VERSION,
            "epoch": settings.epoch,
            "server": {"name": "pagurid", "version": settings.server_version},
            "models": [{"id": name, "context_length": length} for name, length in settings.models.items()],
            "limits": {
                "max_streams": settings.max_streams,
                "max_frame_bytes": settings.max_frame_bytes,
                # No replay and no window yet: a stream ends with its socket.
                "window_bytes": 0,
                "replay_bytes": 0,
                "replay_s": 0,
            },
            "heartbeat_ms": round(settings.heartbeat_s * 1000),
        }

    def _dispatch(self, envelope: Envelope, frame: str) -> list[Action]:
        match envelope.type:
            case "hello":
                return self._close(CloseCode.SECOND_HELLO, "hello was said before")
            case "generate":
                return self._generate(envelope, frame)
            case "cancel":
                id = decode_json(frame, Cancel).id
                return [CancelGeneration(id)] if id in self._streams else []
            case "ping":
                return [Send({"type": "pong", "t": decode_json(frame, Ping).t})]
            case "pong" | "ack":
                return []
            case "resume":
                raise StreamNotFound("this server keeps no stream after its socket has ended")
            case unknown:
                event: Event = {
                    "type": "error",
                    "code": "unknown_type",
                    "message": f"unknown frame type {unknown[:64]!r}",
                    "retryable": False,
                }
                return [Send(event)]

    def _generate(self, envelope: Envelope, frame: str) -> list[Action]:
        problem = id_problem(envelope.id)
        if problem is not None:
            raise problem
        if envelope.id in self._streams:
            # Not an error *of* that id: the running generation must not be ended by its double.
            raise IdInUse("a generation of this id is running", param="id", details={"id": envelope.id})
        if self._draining:
            raise Overloaded("the server is shutting down", retry_after_ms=5000)
        if len(self._streams) >= self._settings.max_streams:
            raise RateLimited(
                f"expected at most {self._settings.max_streams} generations at once on one socket",
                retry_after_ms=1000,
            )
        generate = decode_generate(frame)
        check_model(generate.model, self._settings.models)
        self._streams[generate.id] = _Stream()
        return [StartGeneration(generate)]

    # ── from the engine ──────────────────────────────────────────────────────────────────────────

    def accepted(self, id: str, *, model: str, prompt_tokens: int, max_tokens: int, now: float) -> Event:
        """The request is queued. `cached_tokens` is not known before it is scheduled: `done.usage` has it."""
        fields = {
            "model": model,
            "prompt_tokens": prompt_tokens,
            "cached_tokens": None,
            "max_tokens": max_tokens,
        }
        return self._event(id, "accepted", fields, now)

    def status(self, id: str, fields: Mapping[str, Any], now: float) -> Event | None:
        """Where the request is, if that is news and the last event is long enough ago."""
        stream = self._streams[id]
        if now - stream.last_event_at < STATUS_INTERVAL_S or fields == stream.last_status:
            return None
        stream.last_status = dict(fields)
        return self._event(id, "status", fields, now)

    def delta(self, id: str, *, text: str, fields: Mapping[str, Any], now: float) -> Event:
        """A piece of the answer: whole code points."""
        self._streams[id].chars += len(text)
        return self._event(id, "delta", {"text": text, "channel": "answer", **fields}, now)

    def finished(self, id: str, fields: Mapping[str, Any], now: float) -> Event:
        """The end of a generation."""
        chars = self._streams[id].chars
        event = self._event(id, "done", {**fields, "chars": chars}, now)
        del self._streams[id]
        return event

    def failed(self, id: str, error: PaguridError) -> Event:
        """The end of a generation that was refused or broke."""
        stream = self._streams.pop(id)
        return error_event(error, id=id, seq=stream.next_seq)

    def _event(self, id: str, kind: str, fields: Mapping[str, Any], now: float) -> Event:
        stream = self._streams[id]
        event = {"type": kind, "id": id, "seq": stream.next_seq, **fields}
        stream.next_seq += 1
        stream.last_event_at = now
        return event

    # ── from the clock and the server ────────────────────────────────────────────────────────────

    def poll(self, now: float) -> list[Action]:
        """What time asks for: hello's deadline, heartbeats, a client that is gone."""
        if self._closed:
            return []
        if not self._ready:
            if now - self._opened_at >= self._settings.hello_timeout_s:
                return self._close(CloseCode.HELLO_TOO_LATE, "expected hello sooner")
            return []
        if now - self._last_received_at >= 2.5 * self._settings.heartbeat_s:
            return self._close(CloseCode.HEARTBEAT_MISSED, "nothing was heard for too long")
        if now - max(self._last_received_at, self._last_ping_at) >= self._settings.heartbeat_s:
            self._last_ping_at = now
            return [Send({"type": "ping", "t": round(now * 1000)})]
        return []

    def going_away(self, reason: str, reconnect_after_ms: int) -> list[Action]:
        """The server stops soon: nothing new is taken from here on."""
        self._draining = True
        if not self._ready or self._closed:
            return []
        return [Send({"type": "going_away", "reason": reason, "reconnect_after_ms": reconnect_after_ms})]

    def _close(self, code: CloseCode, reason: str) -> list[Action]:
        self._closed = True
        return [Close(code, reason)]
