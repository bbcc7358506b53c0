"""HTTP clients that leave, operators' routes, access, the page's files, and the end of the server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conftest import running_server

if TYPE_CHECKING:
    from conftest import RunningServer

ROOT = Path(__file__).resolve().parents[2]
LONG = {"prompt": [5] * 40, "max_tokens": 400, "ignore_eos": True}


def test_a_stream_closed_early_is_cancelled(server: RunningServer) -> None:
    """D24: after three chunks, with n = 3."""
    before = server.llm.stats().requests_finished["cancelled"]
    body = {**LONG, "stream": True, "n": 3}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        for _ in range(3):
            next(lines)
    server.wait_until_idle()
    assert server.llm.stats().requests_finished["cancelled"] == before + 1


def test_a_whole_answer_not_waited_for_is_cancelled(server: RunningServer) -> None:
    """D24: not streamed, n = 3, and queued behind others."""
    before = server.llm.stats().completion_tokens
    for _ in range(3):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json={**LONG, "n": 120}, timeout=0.1)
    server.wait_until_idle()
    assert server.llm.stats().completion_tokens - before < 3 * 120 * 400


def test_health_tells_the_truth(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, enforce_eager=True) as server:
        runner = server.llm._engine.runner
        forward = runner.forward

        def broken() -> Any:
            raise RuntimeError("the forward broke")

        assert httpx.get(f"{server.url}/healthz").json()["status"] == "ok"
        runner.forward = broken  # type: ignore[method-assign]
        for _ in range(3):
            response = httpx.post(f"{server.url}/v1/completions", json=LONG)
            assert response.status_code == 500
            assert response.json()["error"]["code"] == "internal"
        health = httpx.get(f"{server.url}/healthz")
        assert health.status_code == 503
        assert "the forward broke" in health.json()["last_error"]
        runner.forward = forward  # type: ignore[method-assign]
        assert httpx.post(f"{server.url}/v1/completions", json=LONG).status_code == 200
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert httpx.get(f"{server.url}/readyz").json() == {"status": "ready"}
        server.wait_until_idle()


def test_metrics_and_stats(server: RunningServer) -> None:
    """The five figures of the server, in both formats."""
    for _ in range(3):
        httpx.post(f"{server.url}/v1/completions", json={**LONG, "max_tokens": 10})
    text = httpx.get(f"{server.url}/metrics").text
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["pagurid:generation_tokens_total"] >= 30
    assert samples["pagurid:time_to_first_token_seconds_count"] >= 3
    assert samples["pagurid:inter_token_latency_seconds_count"] > 0
    assert samples["pagurid:request_queue_time_seconds_count"] >= 3
    assert samples["pagurid:num_requests_running"] == 0
    assert samples["pagurid:kv_cache_usage_perc"] == 0
    assert samples["pagurid:cost_total"] > 0
    memory = server.llm.memory()
    assert samples["pagurid:model_weights_bytes"] == memory.weights_bytes > 0
    assert samples["pagurid:kv_cache_pool_bytes"] == memory.kv_pool_bytes > 0
    if memory.process_peak_bytes is not None:
        assert 0 < samples["pagurid:process_peak_memory_bytes"] <= memory.process_peak_bytes
    stats = httpx.get(f"{server.url}/v1/stats").json()
    assert stats["ttft_ms"]["p50"] > 0
    assert stats["tokens_per_second"]["while_busy"] > 0
    assert stats["queue_ms"]["p99"] >= 0
    assert stats["kv_cache"]["used_bytes"] == 0
    assert stats["memory"]["weights_bytes"] == memory.weights_bytes
    assert stats["cost"]["per_1k_tokens"] > 0
    assert stats["attributed_busy_s"] == pytest.approx(stats["busy_s"], rel=1e-3)


def test_costs_of_all_answers_are_the_servers(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, cost_per_hour=7.2) as server:
        costs = []
        for length in (3, 20, 60):
            body = {"prompt": [5] * length, "max_tokens": length, "ignore_eos": True}
            costs.append(httpx.post(f"{server.url}/v1/completions", json=body).json()["pagurid"]["cost"])
        total = httpx.get(f"{server.url}/v1/stats").json()["cost"]["total"]
        assert sum(costs) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "[::1"},
        {"Origin": "http://[::1"},
    ],
)
def test_other_sites_are_kept_out(server: RunningServer, headers: dict[str, str]) -> None:
    """D30"""
    response = httpx.post(f"{server.url}/v1/completions", json=LONG, headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "forbidden"


def test_allowed_sites_come_in(tiny_model_dir: Path) -> None:
    settings = {"allowed_hosts": ("pagurid.example",), "allowed_origins": ("https://app.example",)}
    with running_server(tiny_model_dir, settings) as server:
        for headers in (
            {"Host": "pagurid.example"},
            {"Host": "localhost:1"},
            {"Host": "[::1]:8000"},
            {"Origin": "https://app.example"},
        ):
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/v1/models", headers={"Host": "other.example"}).status_code == 403
        # A browser asks first, and shows the page only answers that name its origin.
        preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        asked = {**preflight, "Access-Control-Request-Headers": "content-type, authorization"}
        answer = httpx.options(f"{server.url}/v1/chat/completions", headers=asked)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
            200,
            "https://app.example",
        )
        models = httpx.get(f"{server.url}/v1/models", headers={"Origin": "https://app.example"})
        assert models.headers["access-control-allow-origin"] == "https://app.example"
        own = httpx.get(f"{server.url}/v1/models", headers={"Origin": server.url})
        assert "access-control-allow-origin" not in own.headers


def test_a_key_is_asked_for(tiny_model_dir: Path) -> None:
    with running_server(tiny_model_dir, {"api_keys": ("secret",)}) as server:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "secret"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
        ):
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == status
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_the_page_is_served_under_a_strict_policy(server: RunningServer) -> None:
    page = httpx.get(server.url)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy.split("script-src")[1].split(";")[0]
    assert page.headers["x-content-type-options"] == "nosniff"
    scripts = re.findall(r'<script[^>]+src="([^"]+)"', page.text)
    assert scripts
    for script in scripts:
        asset = httpx.get(urljoin(server.url + "/", script))
        assert asset.status_code == 200
        assert ("immutable" in asset.headers["cache-control"]) == ("/assets/" in script)
    assert "http://" not in page.text.replace("http://www.w3.org", "")
    assert httpx.get(f"{server.url}/../../pyproject.toml").status_code == 404


def test_ctrl_c_drains(tiny_model_dir: Path) -> None:
    """Running answers get their time, new ones are refused, sockets are told, the process ends cleanly."""
    command = [
        *(sys.executable, "-m", "pagurid.cli", "serve", "--model", str(tiny_model_dir), "--port", "0"),
        *("--served-model-name", "tiny"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        url = ""
        while not url:
            found = re.search(r"listening at (http://\S+)", process.stdout.readline())
            url = found[1] if found else ""
        with connect(
            url.replace("http", "ws") + "/v1/ws",
            subprotocols=["pagurid.v1"],  # type: ignore[list-item]
            compression=None,
        ) as socket:
            socket.send('{"type": "hello", "protocol": 1}')
            socket.recv()
            generate = {"type": "generate", "id": "generation-000001", "prompt": [5] * 10}
            socket.send(json.dumps({**generate, "sampling": {"max_tokens": 450, "ignore_eos": True}}))
            while json.loads(socket.recv())["type"] != "delta":
                pass
            process.send_signal(signal.SIGINT)
            kinds: list[str] = []
            with pytest.raises(ConnectionClosed) as caught:  # noqa: PT012 (it ends when the server says so)
                while True:
                    event = json.loads(socket.recv())
                    kinds.append(event["type"])
                    if event["type"] == "going_away":
                        socket.send(json.dumps({**generate, "id": "generation-000002"}))
                    if event["type"] == "error":
                        assert event["code"] == "overloaded"
            assert "going_away" in kinds
            assert "done" in kinds
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1001
        assert process.wait(timeout=20) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
