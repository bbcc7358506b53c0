"""pagurid.v1 over real sockets: many generations on one, ends of every kind, doors that stay shut."""

from __future__ import annotations

import asyncio
import json
import socket as sockets
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from conftest import running_server
from pagurid.server import websocket

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import RunningServer

HELLO = {"type": "hello", "protocol": 1}
LONG = {"max_tokens": 400, "ignore_eos": True, "seed": 1}


def address(server: RunningServer) -> str:
    return server.url.replace("http", "ws") + "/v1/ws"


async def opened(
    server: RunningServer, hello: dict[str, Any] | None = None, **options: Any
) -> ClientConnection:
    socket = await connect(
        address(server), subprotocols=["pagurid.v1"], compression=None, close_timeout=1, **options
    )
    await send(socket, HELLO if hello is None else hello)
    return socket


async def send(socket: ClientConnection, frame: dict[str, Any]) -> None:
    await socket.send(json.dumps(frame))


async def receive(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(20):
        event: dict[str, Any] = json.loads(await socket.recv())
        return event


async def closed_with(socket: ClientConnection) -> int:
    async with asyncio.timeout(20):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed:
            assert socket.close_code is not None
            return socket.close_code


def id_of(number: int) -> str:
    return f"generation-{number:08}"


async def test_one_generation_from_hello_to_done(server: RunningServer) -> None:
    socket = await opened(server)
    ready = await receive(socket)
    assert ready["type"] == "ready"
    assert ready["models"] == [{"id": "tiny", "context_length": 512}]
    messages = [{"role": "user", "content": "hello"}]
    sampling = {"max_tokens": 20, "seed": 3, "ignore_eos": True}
    await send(socket, {"type": "generate", "id": id_of(1), "messages": messages, "sampling": sampling})
    events = [await receive(socket)]
    while events[-1]["type"] != "done":
        events.append(await receive(socket))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "accepted"
    assert events[0]["max_tokens"] == 20
    deltas = [event for event in events if event["type"] == "delta"]
    text = "".join(delta["text"] for delta in deltas)
    done = events[-1]
    assert done["finish_reason"] == "length"
    assert done["chars"] == len(text)
    assert done["usage"]["completion_tokens"] == 20
    assert done["usage"]["prompt_tokens"] == events[0]["prompt_tokens"]
    assert done["timing"]["ttft_ms"] >= done["timing"]["queue_ms"] >= 0
    assert done["cost"] > 0
    await socket.close()


async def test_sixteen_generations_on_one_socket_half_of_them_cancelled(server: RunningServer) -> None:
    socket = await opened(server)
    await receive(socket)
    for number in range(16):
        frame = {"type": "generate", "id": id_of(number), "prompt": f"number {number}", "sampling": LONG}
        await send(socket, frame)
    seen: dict[str, int] = {id_of(number): 0 for number in range(16)}
    reasons: dict[str, str] = {}
    cancelled: set[str] = set()
    while len(reasons) < 16:
        event = await receive(socket)
        assert event["type"] in ("accepted", "status", "delta", "done"), event
        id = event["id"]
        assert event["seq"] == seen[id]
        seen[id] += 1
        assert id not in reasons
        if event["type"] == "delta" and int(id[-1], 16) % 2 and id not in cancelled:
            cancelled.add(id)
            await send(socket, {"type": "cancel", "id": id})
            await send(socket, {"type": "cancel", "id": id})
        if event["type"] == "done":
            reasons[id] = event["finish_reason"]
    # A cancel may come when its answer has just ended.
    assert "cancelled" in {reasons[id] for id in cancelled} <= {"cancelled", "length"}
    assert {reasons[id] for id in reasons if id not in cancelled} == {"length"}
    assert cancelled
    await send(socket, {"type": "cancel", "id": id_of(0)})
    await send(socket, {"type": "ping", "t": 1})
    assert (await receive(socket)) == {"type": "pong", "t": 1}
    await socket.close()


async def test_token_ids_logprobs_and_several_answers(server: RunningServer) -> None:
    socket = await opened(server)
    await receive(socket)
    frame = {
        "type": "generate",
        "id": id_of(1),
        "prompt": [5, 6, 7],
        "sampling": {"n": 2, "max_tokens": 6, "seed": 1, "ignore_eos": True, "top_logprobs": 2},
        "stream": {"token_ids": True},
    }
    await send(socket, frame)
    tokens: dict[int, list[int]] = {0: [], 1: []}
    while (event := await receive(socket))["type"] != "done":
        if event["type"] == "delta":
            tokens[event["index"]] += event["token_ids"]
            assert [entry["token_id"] for entry in event["logprobs"]] == event["token_ids"]
            assert all(len(entry["top"]) == 2 for entry in event["logprobs"])
    assert {len(each) for each in tokens.values()} == {6}
    assert tokens[0] != tokens[1]
    assert event["finish_reasons"] == ["length", "length"]
    await socket.close()


async def test_an_id_in_use_is_refused_and_the_running_one_goes_on(server: RunningServer) -> None:
    """D19: no crossed text; reuse right after the end is fine."""
    socket = await opened(server)
    await receive(socket)
    frame = {"type": "generate", "id": id_of(1), "prompt": "a", "sampling": LONG}
    await send(socket, frame)
    await send(socket, {**frame, "prompt": "other"})
    codes = []
    while (event := await receive(socket))["type"] != "done":
        if event["type"] == "error":
            assert "id" not in event
            codes.append(event["code"])
    assert codes == ["id_in_use"]
    assert event["finish_reason"] == "length"
    for _ in range(5):
        await send(socket, frame)
        while (await receive(socket))["type"] != "delta":
            pass
        await send(socket, {"type": "cancel", "id": id_of(1)})
        while (event := await receive(socket))["type"] != "done":
            pass
        assert event["finish_reason"] in ("cancelled", "length")
    await send(socket, frame)
    await receive(socket)
    await socket.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", ["at once", "in the middle"])
async def test_a_client_that_leaves_takes_its_generations_along(
    server: RunningServer, how: str, when: str
) -> None:
    """D24: decoding, prefilling and queued ones alike, n = 3; nothing is left, others go on."""
    other = await opened(server)
    await receive(other)
    await send(other, {"type": "generate", "id": id_of(99), "prompt": "other", "sampling": LONG})
    socket = await opened(server)
    await receive(socket)
    for number in range(40):
        sampling = {**LONG, "n": 3 if number % 4 == 0 else 1}
        frame = {"type": "generate", "id": id_of(number), "prompt": [5] * 90, "sampling": sampling}
        await send(socket, frame)
    if when == "in the middle":
        while (await receive(socket))["type"] != "delta":
            pass
    if how == "close":
        await socket.close(1001)
    else:
        raw = socket.transport.get_extra_info("socket")
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
        socket.transport.abort()
    while (event := await receive(other))["type"] != "done":
        assert event["type"] != "error"
    assert event["finish_reason"] == "length"
    await other.close()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([{**HELLO, "protocol": 2}], 4406),
        ([{"type": "ping"}], 4400),
        ([HELLO, HELLO], 4409),
        ([HELLO, "nope"], 4400),
        ([HELLO, "[1]"], 4400),
        ([HELLO, r'"\ud800"'], 4400),
        ([HELLO, b"\x00"], 1003),
        ([HELLO, " " * (1 << 20) + "{}"], 1009),
    ],
)
async def test_close_codes(server: RunningServer, frames: list[Any], code: int) -> None:
    async with connect(address(server), subprotocols=["pagurid.v1"], compression=None) as socket:  # type: ignore[list-item]
        for frame in frames:
            await socket.send(json.dumps(frame) if isinstance(frame, dict) else frame)
        assert await closed_with(socket) == code


async def test_handshakes_that_are_refused(server: RunningServer) -> None:
    """D30 among them: an Origin of another site, a Host nobody knows."""

    async def status(**options: Any) -> int:
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(server), compression=None, close_timeout=1, **options)
        return caught.value.response.status_code

    assert await status() == 400
    assert await status(subprotocols=["other"]) == 400
    good = {"subprotocols": ["pagurid.v1"]}
    assert await status(**good, origin="https://evil.example") == 403
    assert await status(**good, origin="null") == 403
    # A name that an attacker's DNS points to this machine.
    host, port = server.url.removeprefix("http://").split(":")
    with pytest.raises(InvalidStatus) as caught:
        await connect("ws://evil.example/v1/ws", host=host, port=int(port), compression=None, **good)  # type: ignore[arg-type]
    assert caught.value.response.status_code == 403
    async with connect(address(server), compression=None, origin=server.url, **good):  # type: ignore[arg-type]
        pass


async def test_keys(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, {"api_keys": ("secret-key",)}) as server:
        for hello, expected in (
            (HELLO, 4401),
            ({**HELLO, "token": "wrong"}, 4401),
            ({**HELLO, "token": "secret-key"}, None),
        ):
            socket = await opened(server, hello)
            if expected is None:
                assert (await receive(socket))["type"] == "ready"
                await socket.close()
            else:
                assert await closed_with(socket) == expected
        headers = {"Authorization": "Bearer secret-key"}
        socket = await opened(server, additional_headers=headers)
        assert (await receive(socket))["type"] == "ready"
        await socket.close()


async def test_hello_is_due_and_silence_ends_a_socket(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, {"hello_timeout_s": 0.3, "heartbeat_s": 0.4}) as server:
        socket = await connect(address(server), subprotocols=["pagurid.v1"], compression=None)  # type: ignore[list-item]
        assert await closed_with(socket) == 4408
        socket = await opened(server)
        assert (await receive(socket))["type"] == "ready"
        assert (await receive(socket))["type"] == "ping"
        assert await closed_with(socket) == 4440


async def test_thirty_two_clients_at_once(server: RunningServer) -> None:
    """128 + 128 tokens each, over sockets of their own: no error, all of the answer."""

    async def one(number: int) -> int:
        socket = await opened(server)
        await receive(socket)
        sampling = {"max_tokens": 128, "ignore_eos": True}
        frame = {
            "type": "generate",
            "id": id_of(number),
            "prompt": [5 + number] * 128,
            "sampling": sampling,
        }
        await send(socket, frame)
        while (event := await receive(socket))["type"] != "done":
            assert event["type"] != "error", event
        await socket.close()
        return int(event["usage"]["completion_tokens"])

    assert await asyncio.gather(*(one(number) for number in range(32))) == [128] * 32


async def test_a_waiting_request_says_where_it_waits(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, max_num_seqs=1, enforce_eager=True) as server:
        socket = await opened(server)
        await receive(socket)
        llm = server.llm
        forward = llm._engine.runner.forward

        def slow_forward() -> Any:
            import time

            time.sleep(0.01)
            return forward()

        llm._engine.runner.forward = slow_forward  # type: ignore[method-assign]
        for number in range(2):
            await send(socket, {"type": "generate", "id": id_of(number), "prompt": "x", "sampling": LONG})
        while (event := await receive(socket))["type"] != "status" or event["id"] != id_of(1):
            pass
        assert (event["state"], event["position"]) == ("queued", 0)
        await socket.close()
        server.wait_until_idle()


async def test_a_client_that_stops_reading_ends_with_its_generations(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: after the stall time-out its work is cancelled, though no close frame can reach it."""
    monkeypatch.setattr(websocket, "STALL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(websocket, "FAREWELL_TIMEOUT_S", 0.05)
    with running_server(tiny_model_dir, max_num_seqs=64) as server:
        host, port = server.url.removeprefix("http://").split(":")
        raw = sockets.socket()
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        raw.connect((host, int(port)))
        raw.setblocking(False)
        stalled = await connect(
            address(server), sock=raw, subprotocols=["pagurid.v1"], compression=None, max_queue=1
        )
        await send(stalled, HELLO)
        sampling = {"n": 8, "max_tokens": 400, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
        stream = {"token_ids": True, "logprobs": True}
        for number in range(8):
            request = {"type": "generate", "id": id_of(number), "prompt": [5] * 20, "stream": stream}
            await send(stalled, {**request, "sampling": sampling})
        scheduler = server.llm._engine.scheduler
        deadline = time.monotonic() + 30
        while scheduler.stats().requests_finished["cancelled"] == 0:
            assert time.monotonic() < deadline, scheduler.stats().requests_finished
            await asyncio.sleep(0.05)
        server.wait_until_idle()
        stalled.transport.abort()
