"""The server's end of `pagurid.v1` played by the test, for what a real model cannot be made to say.

The page and all its files still come from the real server; only the WebSocket is the test's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, WebSocketRoute


class ScriptedServer:
    """Plays `on_generate(reply, request)` for each message; `reply` fills in id and seq."""

    def __init__(
        self, on_generate: Callable[[Reply, dict[str, Any]], None], *, token: str | None = None
    ) -> None:
        self.on_generate = on_generate
        self.token = token
        self.connections = 0
        self.received: list[dict[str, Any]] = []

    def install(self, page: Page) -> None:
        page.route_web_socket("**/v1/ws", self._connect)

    def _connect(self, socket: WebSocketRoute) -> None:
        self.connections += 1
        socket.on_message(lambda frame: self._receive(socket, json.loads(frame)))

    def _receive(self, socket: WebSocketRoute, frame: dict[str, Any]) -> None:
        self.received.append(frame)
        if frame["type"] == "hello":
            if self.token is not None and frame.get("token") != self.token:
                socket.close(code=4401, reason="no or wrong token")
                return
            socket.send(json.dumps(READY))
        elif frame["type"] == "generate":
            self.on_generate(Reply(socket, frame["id"]), frame)
        elif frame["type"] == "ping":
            socket.send(json.dumps({"type": "pong", "t": frame["t"]}))


READY = {
    "type": "ready",
    "protocol": 1,
    "epoch": "scripted",
    "server": {"name": "pagurid", "version": "0"},
    "models": [{"id": "scripted", "context_length": 4096}],
    "limits": {
        "max_streams": 64,
        "max_frame_bytes": 1 << 20,
        "window_bytes": 1 << 18,
        "replay_bytes": 1 << 20,
        "replay_s": 300,
    },
    "heartbeat_ms": 15000,
}


class Reply:
    """One generation's events, counted."""

    def __init__(self, socket: WebSocketRoute, id_: str) -> None:
        self.socket = socket
        self.id = id_
        self._seq = 0
        self._chars = 0
        self._tokens = 0

    def say(self, type_: str, *, skip: int = 0, **fields: Any) -> None:
        self._seq += skip
        self.socket.send(json.dumps({"type": type_, "id": self.id, "seq": self._seq, **fields}))
        self._seq += 1

    def accept(self) -> None:
        self.say("accepted", model="scripted", prompt_tokens=41, cached_tokens=32, max_tokens=1000)

    def delta(self, text: str) -> None:
        self._tokens += 1
        self._chars += len(text)
        self.say("delta", text=text, channel="answer", n=self._tokens)

    def done(self, finish_reason: str = "stop", **fields: Any) -> None:
        usage = {"prompt_tokens": 41, "cached_tokens": 32, "completion_tokens": self._tokens}
        timing = {
            "queue_ms": 2.3,
            "prefill_ms": 48.2,
            "ttft_ms": 50.6,
            "decode_ms": 913.0,
            "tokens_per_second": 84.2,
        }
        self.say("done", finish_reason=finish_reason, usage=usage, timing=timing, chars=self._chars, **fields)

    def error(self, code: str, message: str, *, retryable: bool = False) -> None:
        self.say("error", code=code, message=message, retryable=retryable)

    def answer(self, text: str, piece_chars: int = 7) -> None:
        """The whole of an answer in small pieces."""
        self.accept()
        for start in range(0, len(text), piece_chars):
            self.delta(text[start : start + piece_chars])
        self.done()
