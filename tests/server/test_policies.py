"""Tenants, priorities, salts and waits, from the doors to the scheduler and back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_websocket import HELLO, LONG, id_of, opened, receive, send

from conftest import RunningServer, running_server
from pagurid.server.access import KeyCheck


def complete(server: RunningServer, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    fields = {"model": "tiny", "prompt": list(range(1, 40)), "max_tokens": 4, "temperature": 0} | body
    return httpx.post(f"{server.url}/v1/completions", json=fields, headers=headers, timeout=30)


def cached_tokens(response: httpx.Response) -> int:
    assert response.status_code == 200, response.text
    cached: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def test_several_keys_are_several_tenants_and_are_not_given_away() -> None:
    check = KeyCheck(("first-key", "second-key"))
    allowed = [check(key) for key in ("first-key", "second-key", "third-key", None)]
    assert allowed == [True, True, False, False]
    first, second = check.tenant_of("first-key"), check.tenant_of("second-key")
    assert first != second
    assert "first-key" not in str(first)
    assert KeyCheck(("only-key",)).tenant_of("only-key") is None
    assert KeyCheck(()).tenant_of(None) is None


def test_tenants_are_told_apart_by_key_else_by_user(tiny_model_dir: Path) -> None:
    keys = {"api_keys": ("one", "two")}
    with running_server(tiny_model_dir, keys, isolate_tenants=True) as server:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        assert cached_tokens(complete(server, one)) == 0
        assert cached_tokens(complete(server, one, user="whoever")) == 32, "the key counts, not the user"
        assert cached_tokens(complete(server, two)) == 0
    with running_server(tiny_model_dir, isolate_tenants=True) as server:
        assert cached_tokens(complete(server, user="a")) == 0
        assert cached_tokens(complete(server, user="a")) == 32
        assert cached_tokens(complete(server, user="b")) == 0


def test_prefixes_are_shared_within_a_salt_only(server: RunningServer) -> None:
    """D17: what the figures say of a stranger's prompt is nothing."""
    prompt = [7, 9, 8] * 12
    assert cached_tokens(complete(server, prompt=prompt, cache_salt="x")) == 0
    assert cached_tokens(complete(server, prompt=prompt, cache_salt="y")) == 0
    assert cached_tokens(complete(server, prompt=prompt)) == 0
    assert cached_tokens(complete(server, prompt=prompt, cache_salt="x")) == 32
    for salt in ("", "s" * 300, 5):
        refused = complete(server, cache_salt=salt)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "cache_salt")


@pytest.mark.parametrize("priority", [1, -(2**31), 2**31, "1", 1.5])
def test_a_priority_that_would_not_count_is_refused(server: RunningServer, priority: Any) -> None:
    refused = complete(server, priority=priority)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")


def test_a_priority_counts_under_its_policy(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, scheduling_policy="priority") as server:
        assert complete(server, priority=-3).status_code == 200
        assert complete(server, priority=2**31).status_code == 400


async def test_the_least_served_tenant_goes_first(tiny_model_dir: Path) -> None:
    options = {"scheduling_policy": "fair", "max_num_seqs": 1}
    with running_server(tiny_model_dir, **options) as server:
        socket = await opened(server, HELLO)
        assert (await receive(socket))["type"] == "ready"
        request = {"type": "generate", "prompt": [5] * 40, "sampling": LONG}
        for number in range(6):
            await send(socket, {**request, "id": id_of(number), "user": "flood"})
        await send(socket, {**request, "id": id_of(100), "user": "light"})
        ended: list[str] = []
        ended_before = 7
        while len(ended) < 7:
            event = await receive(socket)
            if event["type"] == "done":
                ended.append(event["id"])
            elif event["type"] == "accepted" and event["id"] == id_of(100):
                ended_before = len(ended)
            assert event["type"] != "error", event
        assert ended.index(id_of(100)) <= ended_before + 2, "the flood came first, but has had its part"
        await socket.close()


async def test_who_waits_is_told_how_long_and_who_would_wait_too_long_when_to_come_back(
    tiny_model_dir: Path,
) -> None:
    options = {"max_num_seqs": 1, "max_queue_wait_ms": 600_000.0}
    with running_server(tiny_model_dir, **options) as server:
        socket = await opened(server, HELLO)
        assert (await receive(socket))["type"] == "ready"
        sampling = {"max_tokens": 500, "ignore_eos": True, "temperature": 0}
        for number in range(30):  # enough to wait for, however fast the machine is
            request = {"type": "generate", "id": id_of(number), "prompt": [5, 6], "sampling": sampling}
            await send(socket, request)
        seen: list[dict[str, Any]] = []
        ended = 0
        while ended < 30:
            event = await receive(socket)
            ended += event["type"] == "done"
            if event["type"] == "status" and event["state"] == "queued":
                seen.append(event)
        with_eta = [event for event in seen if "eta_ms" in event]
        assert with_eta, "as soon as one has ended there is experience"
        assert all(event["eta_ms"] >= 0 and event["position"] >= 0 for event in with_eta)
        await socket.close()
    with running_server(tiny_model_dir, max_num_seqs=1, max_queued_requests=2) as server:
        async with httpx.AsyncClient(timeout=60) as client:

            async def ask() -> httpx.Response:
                fields = {"prompt": [5, 6], "max_tokens": 500, "ignore_eos": True}
                return await client.post(f"{server.url}/v1/completions", content=json.dumps(fields))

            answers = await asyncio.gather(*(ask() for _ in range(20)))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert 0 < len(refused) < 20
        for answer in refused:
            error = answer.json()["error"]
            assert error["code"] == "queue_full"
            assert int(answer.headers["retry-after"]) == -(-error["retry_after_ms"] // 1000)
