"""`run`: the whole life of a server process, from the socket to the last goodbye.

Owns: binding (a taken port is one clear line), signals (first: drain, second: stop at once), the order of the
end: no new work, running answers finish within the grace, sockets get `going_away` and 1001, then the engine
stops.
Must not know: routes, models.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

import uvicorn

from pagurid.async_llm import AsyncLLM
from pagurid.errors import ConfigError
from pagurid.server.app import create_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette

    from pagurid.config import EngineConfig
    from pagurid.server.settings import ServerSettings

__all__ = ["bind", "run", "serve"]


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError in one line if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is in use; stop what uses it or choose another with --port"
            ) from None
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL to open."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    config: EngineConfig, settings: ServerSettings, *, on_listening: Callable[[str], None] | None = None
) -> None:
    """Serves until a signal ends it. Raises ConfigError and ModelLoadError before it listens."""
    # The port first: a model takes seconds to load only to find it taken.
    with bind(settings.host, settings.port) as listener:
        llm = AsyncLLM(config)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(llm, settings, listener, on_listening=on_listening))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def serve(
    llm: AsyncLLM,
    settings: ServerSettings,
    listener: socket.socket,
    *,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serves on an open socket until a signal or the cancellation of this task; then closes the engine."""
    app = create_app(llm, settings)
    config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=settings.max_frame_bytes,
        ws_per_message_deflate=False,
        # Liveness is the protocol's own: browsers show no WebSocket pings.
        ws_ping_interval=None,
        ws_ping_timeout=None,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config, app, settings.grace_s)
    logging.getLogger("uvicorn.error").addFilter(_NoFalseAlarm())
    try:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not task.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        if server.started and on_listening is not None:
            on_listening(address_of(listener))
        await task
    finally:
        await llm.close()


class _NoFalseAlarm(logging.Filter):
    """uvicorn calls a handshake that was refused with a status of ours incomplete. It is not."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True for what is worth reading."""
        return "without completing handshake" not in record.getMessage()


class _Server(uvicorn.Server):
    """uvicorn, with our way to end."""

    def __init__(self, config: uvicorn.Config, app: Starlette, grace_s: float) -> None:
        super().__init__(config)
        self._app = app
        self._grace_s = grace_s
        self._ending: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In the main thread only; elsewhere whoever runs us ends us."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        """First signal: drain. Second: stop at once."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.force_exit = True
            self.should_exit = True

    async def _drain(self) -> None:
        state = self._app.state
        try:
            state.serving.draining = True
            await state.websocket.announce_end()
            await state.serving.drain(self._grace_s)
            await state.websocket.close_all()
        finally:
            self.should_exit = True


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
