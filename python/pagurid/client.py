"""A small blocking client of pagurid.v1: one conversation partner behind a WebSocket.

Owns: the handshake, and one generation at a time with its events in order.
Must not know: the engine, the server's code.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import connect

from pagurid.errors import ERRORS, ConfigError, PaguridError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["Client"]

SUBPROTOCOL = "pagurid.v1"


class Client:
    """`with Client("http://127.0.0.1:8000") as client: …`. Raises ConfigError if there is no such server."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._url = url
        self._token = token
        self._connect()

    def _connect(self) -> None:
        address = self._url.rstrip("/").replace("http", "ws", 1) + "/v1/ws"
        try:
            self._socket = connect(address, subprotocols=[SUBPROTOCOL], compression=None)  # type: ignore[list-item]
            self._send({"type": "hello", "protocol": 1, **({"token": self._token} if self._token else {})})
            self.ready = self._receive()
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise ConfigError(f"cannot talk to {self._url}: {error}") from None

    def generate(
        self, messages: list[dict[str, Any]], sampling: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The server's events for one answer, ending with `done`. Closing the iterator cancels it.

        Raises the error the server sent, or ConfigError when the connection breaks.
        """
        id = secrets.token_urlsafe(18)
        request = {"type": "generate", "id": id, "messages": messages, "sampling": sampling or {}}
        try:
            self._send(request)
        except ConfigError:
            # Nobody answers heartbeats while nothing is asked: the server has hung up meanwhile.
            self._connect()
            self._send(request)
        ended = False
        try:
            while not ended:
                event = self._receive()
                if event.get("id") != id and event["type"] != "error":
                    continue
                if event["type"] == "error":
                    ended = True
                    raise _error_of(event)
                ended = event["type"] == "done"
                yield event
        finally:
            if not ended:
                # On a connection that has ended there is nothing left to cancel.
                with contextlib.suppress(ConfigError):
                    self._send({"type": "cancel", "id": id})

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, frame: dict[str, Any]) -> None:
        try:
            self._socket.send(json.dumps(frame))
        except ConnectionClosed as error:
            raise ConfigError(f"the connection to the server ended: {error}") from None

    def _receive(self) -> dict[str, Any]:
        """The next event that is not a heartbeat."""
        while True:
            try:
                event: dict[str, Any] = json.loads(self._socket.recv())
            except ConnectionClosed as error:
                raise ConfigError(f"the connection to the server ended: {error}") from None
            if event["type"] != "ping":
                return event
            self._send({"type": "pong", "t": event.get("t")})


def _error_of(event: dict[str, Any]) -> PaguridError:
    kind = ERRORS.get(event["code"], PaguridError)
    return kind(event["message"], param=event.get("param"), retry_after_ms=event.get("retry_after_ms"))
