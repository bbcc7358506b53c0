"""`GET /v1/ws`: the thin shell around a `Session`.

Owns: the socket, one task per generation, the order of sends. Every send is awaited under one fair lock, so
generations take turns, and a client that reads slowly makes its own deltas fewer and larger: nothing is taken
from the engine before the last piece has been sent.
Must not know: the rules of the protocol (the session's), how tokens are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect, WebSocketState

from pagurid._core import SamplingParams
from pagurid.errors import InternalError, PaguridError
from pagurid.server.access import bearer_token
from pagurid.server.event_fields import delta_fields, done_fields, status_fields
from pagurid.server.http_errors import plain_error
from pagurid.server.protocol import (
    Action,
    CancelGeneration,
    Close,
    CloseCode,
    Event,
    Generate,
    Send,
    Session,
    SessionSettings,
    StartGeneration,
    encode,
)
from pagurid.server.sampling_fields import sampling_arguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.websockets import WebSocket

    from pagurid.async_llm import Generation
    from pagurid.server.serving import Serving

__all__ = ["SUBPROTOCOL", "WebSocketRoute"]

SUBPROTOCOL = "pagurid.v1"
POLL_INTERVAL_S = 0.25
STALL_TIMEOUT_S = 60.0
FAREWELL_TIMEOUT_S = 1.0

log = logging.getLogger("pagurid.server")


class WebSocketRoute:
    """The endpoint; knows all open sockets so that the server can say goodbye."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        settings = serving.settings
        self._session_settings = SessionSettings(
            epoch=serving.epoch,
            server_version=serving.version,
            models=serving.models,
            max_streams=settings.max_streams,
            max_frame_bytes=settings.max_frame_bytes,
            heartbeat_s=settings.heartbeat_s,
            hello_timeout_s=settings.hello_timeout_s,
            check_token=serving.check_key,
        )
        self._sockets: set[_Socket] = set()

    async def __call__(self, websocket: WebSocket) -> None:
        """Serves one client until either side ends it."""
        if SUBPROTOCOL not in websocket.scope.get("subprotocols", []):
            message = f"expected the WebSocket subprotocol {SUBPROTOCOL} to be offered"
            await websocket.send_denial_response(plain_error(400, "invalid_request", message))
            return
        await websocket.accept(SUBPROTOCOL)
        # With no key set nobody is asked; with one, a program may have sent it in the handshake.
        token = bearer_token(websocket.headers)
        authorized = self._serving.check_key(token)
        session = Session(self._session_settings, now=time.monotonic(), authorized=authorized)
        # Whatever else the client says it is, it is who it has proved to be.
        socket = _Socket(websocket, session, self._serving, token if authorized else None)
        self._sockets.add(socket)
        try:
            await socket.run()
        finally:
            self._sockets.discard(socket)

    async def announce_end(self) -> None:
        """Tells every client that the server stops soon."""
        await self._all_within_reason(lambda socket: socket.announce_end())

    async def close_all(self) -> None:
        """Ends every socket with 1001."""
        going = Close(CloseCode.GOING_AWAY, "the server is shutting down")
        await self._all_within_reason(lambda socket: socket.act(going))

    async def _all_within_reason(self, farewell: Callable[[_Socket], Awaitable[None]]) -> None:
        """A client that does not read must not hold up the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_TIMEOUT_S):
                await asyncio.gather(*(farewell(socket) for socket in list(self._sockets)))


class _Running:
    """One generation between the client's wish and its end."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.generation: Generation | None = None
        self._is_cancelled = False

    def started(self, generation: Generation) -> None:
        """The engine has it."""
        self.generation = generation
        if self._is_cancelled:
            generation.cancel()

    def cancel(self) -> None:
        """Also before the engine has it."""
        self._is_cancelled = True
        if self.generation is not None:
            self.generation.cancel()


class _Socket:
    """One client."""

    def __init__(self, websocket: WebSocket, session: Session, serving: Serving, token: str | None) -> None:
        self._websocket = websocket
        self._token = token
        self._session = session
        self._serving = serving
        self._send_lock = asyncio.Lock()
        self._running: dict[str, _Running] = {}
        self._given_up = asyncio.Event()
        """The client does not read: nothing reaches it, not even a farewell."""

    async def run(self) -> None:
        """Reads until the client is gone; then everything of this socket is cancelled."""
        poll = asyncio.create_task(self._poll())
        read = asyncio.create_task(self._read())
        given_up = asyncio.create_task(self._given_up.wait())
        try:
            await asyncio.wait({read, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if read.done():
                read.result()
        finally:
            tasks = [poll, read, given_up, *(running.task for running in self._running.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while self._websocket.application_state is WebSocketState.CONNECTED:
                message = await self._websocket.receive()
                if message["type"] != "websocket.receive":
                    break
                frame = message.get("text")
                for action in self._session.receive(
                    message["bytes"] if frame is None else frame, time.monotonic()
                ):
                    await self.act(action)

    async def announce_end(self) -> None:
        """Says `going_away`."""
        for action in self._session.going_away("shutdown", reconnect_after_ms=2000):
            await self.act(action)

    async def act(self, action: Action) -> None:
        """Carries out what the session wants."""
        match action:
            case Send(event):
                await self._send(event)
            case Close(code, reason):
                await self._close(code, reason)
            case StartGeneration(generate):
                running = _Running()
                running.task = asyncio.create_task(self._generate(generate, running))
                running.task.add_done_callback(lambda _: self._forget(generate.id, running))
                self._running[generate.id] = running
            case CancelGeneration(id):
                self._running[id].cancel()

    def _forget(self, id: str, running: _Running) -> None:
        # The client may have begun another generation of this name as soon as it saw the end of this one.
        if self._running.get(id) is running:
            del self._running[id]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            now = time.monotonic()
            for action in self._session.poll(now):
                await self.act(action)
            for id, running in list(self._running.items()):
                if running.generation is None or id not in self._session.live_ids:
                    continue
                progress = running.generation.progress()
                if progress is not None and progress.state != "finished":
                    status = self._session.status(id, status_fields(progress), time.monotonic())
                    if status is not None:
                        await self._send(status)

    async def _generate(self, generate: Generate, running: _Running) -> None:
        """One generation from submit to its last event."""
        id = generate.id
        session = self._session
        try:
            params = SamplingParams(**sampling_arguments(generate.sampling, logprobs=generate.logprobs))
            prompt = generate.messages if generate.messages is not None else generate.prompt
            assert prompt is not None  # checked by the session
            token = self._token if self._token is not None else session.token
            options = self._serving.request_options(generate, token)
            generation = await self._serving.start(prompt, params, options)
        except PaguridError as error:
            await self._send(session.failed(id, error))
            return
        except Exception:
            log.exception("submit failed")
            await self._send(session.failed(id, InternalError("the request could not be started")))
            return
        try:
            running.started(generation)
            accepted = session.accepted(
                id,
                model=self._serving.llm.served_model_name,
                prompt_tokens=generation.prompt_tokens,
                max_tokens=generation.max_tokens,
                now=time.monotonic(),
            )
            await self._send(accepted)
            await self._stream(generate, generation)
        except PaguridError as error:
            if id in session.live_ids:
                await self._send(session.failed(id, error))
        finally:
            self._serving.drop(generation)

    async def _stream(self, generate: Generate, generation: Generation) -> None:
        id = generate.id
        reasons: dict[int, str] = {}
        async for delta in self._serving.deltas(generation):
            fields = delta_fields(delta, generate)
            if fields is not None:
                await self._send(
                    self._session.delta(id, text=delta.text, fields=fields, now=time.monotonic())
                )
            if delta.error is not None:
                raise InternalError(delta.error)
            if delta.finish_reason is not None:
                reasons[delta.index] = delta.finish_reason
            if delta.metrics is not None:
                done = done_fields(delta.metrics, [reasons[index] for index in sorted(reasons)])
                await self._send(self._session.finished(id, done, time.monotonic()))

    async def _send(self, event: Event) -> None:
        # The lock is first come, first served, and events are made right before they queue for it: so `seq`
        # goes out in order and no generation gets two turns while another waits.
        async with self._send_lock:
            if self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            try:
                async with asyncio.timeout(STALL_TIMEOUT_S):
                    await self._websocket.send_text(encode(event))
            except TimeoutError:
                await self._close_now(CloseCode.SLOW_CONSUMER, "nothing was read for too long")
                self._given_up.set()
            except (WebSocketDisconnect, RuntimeError):
                # The client is gone; the reader finds out and cancels everything.
                return

    async def _close(self, code: CloseCode, reason: str) -> None:
        async with self._send_lock:
            if self._websocket.application_state is WebSocketState.CONNECTED:
                await self._close_now(code, reason)

    async def _close_now(self, code: CloseCode, reason: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_TIMEOUT_S):
                # A close frame holds at most 123 bytes of reason.
                await self._websocket.close(code, reason.encode()[:120].decode(errors="ignore"))
