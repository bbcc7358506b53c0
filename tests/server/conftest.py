"""A real server on a real socket around a real engine with a tiny model, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagurid import AsyncLLM
from pagurid.server.serve import bind, serve
from pagurid.server.settings import ServerSettings

WITHIN_S = 30.0


@dataclass
class RunningServer:
    url: str
    llm: AsyncLLM

    def wait_until_idle(self) -> None:
        """Nothing runs, and the idle invariant holds."""
        deadline = time.monotonic() + WITHIN_S
        while self.llm._engine.scheduler.has_unfinished_requests():
            assert time.monotonic() < deadline, "requests are still running"
            time.sleep(0.005)
        time.sleep(0.02)
        self.llm.check_invariants(idle=True)


@contextlib.contextmanager
def running_server(
    model: Path, settings: dict[str, Any] | None = None, **options: Any
) -> Iterator[RunningServer]:
    given = ServerSettings(port=0, grace_s=1.0, **(settings or {}))
    listener = bind("127.0.0.1", 0)
    llm = AsyncLLM(str(model), served_model_name="tiny", **options)
    listening = threading.Event()
    loop = asyncio.new_event_loop()
    address: list[str] = []

    def on_listening(url: str) -> None:
        address.append(url)
        listening.set()

    task: list[asyncio.Task[None]] = []

    async def main() -> None:
        task.append(asyncio.ensure_future(serve(llm, given, listener, on_listening=on_listening)))
        with contextlib.suppress(asyncio.CancelledError):
            await task[0]

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert listening.wait(WITHIN_S)
    try:
        yield RunningServer(address[0], llm)
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(WITHIN_S)
        assert not thread.is_alive()
        listener.close()


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path) -> Iterator[RunningServer]:
    with running_server(tiny_model_dir, max_num_seqs=32, cost_per_hour=3.6) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that used the shared server: idle, with every block back."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").wait_until_idle()
