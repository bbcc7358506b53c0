"""Bad requests through both doors: a clear error, nothing reaches the engine, the next one works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.sync.client import connect

if TYPE_CHECKING:
    from conftest import RunningServer

BAD_SAMPLING: list[tuple[str, Any, str]] = [
    # D07
    ("stop", "", "stop"),
    ("stop", ["", "\n"], "stop"),
    ("stop", ["x"] * 100_000, "stop"),
    ("stop", [5], "stop"),
    # D08
    ("temperature", -0.5, "temperature"),
    ("temperature", "hot", "temperature"),
    ("temperature", True, "temperature"),
    # D09
    ("logit_bias", {"100000": -100}, "logit_bias"),
    ("logit_bias", {"-1": 1}, "logit_bias"),
    ("logit_bias", {"abc": 1}, "logit_bias"),
    ("logit_bias", {"1e18": 1}, "logit_bias"),
    ("logit_bias", {str(token): 1 for token in range(50_000)}, "logit_bias"),
    # D15
    ("max_tokens", 0, "max_tokens"),
    ("max_tokens", 100_000, "prompt"),
    # D27
    ("n", 1_000_000, "n"),
    ("n", 2**63, "n"),
    ("n", 0, "n"),
    ("n", -1, "n"),
    ("n", 1.5, "n"),
    ("n", "2", "n"),
    ("n", True, "n"),
    ("top_logprobs", 10**6, "top_logprobs"),
    ("top_p", 0, "top_p"),
    ("top_p", 1.01, "top_p"),
    ("min_p", 2, "min_p"),
    ("top_k", -5, "top_k"),
    ("repetition_penalty", 0, "repetition_penalty"),
    ("presence_penalty", 3, "presence_penalty"),
    ("seed", 2**70, "seed"),
    ("stop_token_ids", [10**6], "stop_token_ids"),
]

BAD_BODIES: list[tuple[str, str]] = [
    ("", "JSON"),
    ("nope", "JSON"),
    ("[1]", "object"),
    ('{"messages": []}', "messages"),
    ('{"messages": "hi"}', "messages"),
    ('{"messages": [{"role": "user", "content": null}]}', "content"),
    ('{"messages": [{"role": "user", "content": 5}]}', "content"),
    # D26
    (r'{"messages": [{"role": "user", "content": "emoji \ud83d"}]}', "surrogate"),
    (r'{"messages": [{"role": "user", "content": "x \ude00 y"}]}', "surrogate"),
    (r'{"messages": [{"role": "user", "content": "x"}], "stop": "\udcf0"}', "surrogate"),
    ('{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', "JSON"),
    ('{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', "temperature"),
    ('{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}', "tools"),
    ('{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}', "text"),
]

# D14, and ids that are none
BAD_PROMPTS: list[Any] = ["", [""], [], [[]], None, 5, [5, "x"], [1.5], [-1], [True], [10**6], {"a": 1}]


def ok_again(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    assert httpx.post(f"{server.url}/v1/chat/completions", json=body).status_code == 200


def refused(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["message"]
    return error


@pytest.mark.parametrize(("name", "value", "param"), BAD_SAMPLING, ids=lambda value: str(value)[:24])
def test_bad_sampling_over_http(server: RunningServer, name: str, value: Any, param: str) -> None:
    steps = server.llm.stats().steps
    body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": name == "top_logprobs", name: value}
    error = refused(httpx.post(f"{server.url}/v1/chat/completions", json=body))
    assert (error["param"] or "").startswith(param)
    assert error["code"] in ("invalid_request", "context_length_exceeded")
    assert server.llm.stats().steps == steps
    ok_again(server)


def test_bad_sampling_over_websocket(server: RunningServer) -> None:
    address = server.url.replace("http", "ws") + "/v1/ws"
    with connect(address, subprotocols=["pagurid.v1"], compression=None) as socket:  # type: ignore[list-item]
        socket.send('{"type": "hello", "protocol": 1}')
        socket.recv()
        for number, (name, value, param) in enumerate(BAD_SAMPLING):
            frame = {
                "type": "generate",
                "id": f"generation-{number:05}",
                "prompt": "x",
                "sampling": {name: value},
            }
            socket.send(json.dumps(frame))
            event = json.loads(socket.recv())
            assert event["type"] == "error", event
            assert (event["id"], event["seq"]) == (frame["id"], 0)
            assert param in (event.get("param") or "")
        socket.send(
            '{"type": "generate", "id": "generation-after-all", "prompt": "x", "sampling": {"max_tokens": 1}}'
        )
        kinds = []
        while not kinds or kinds[-1] != "done":
            kinds.append(json.loads(socket.recv())["type"])
        assert kinds[0] == "accepted"


@pytest.mark.parametrize(("body", "expected"), BAD_BODIES)
def test_bad_bodies(server: RunningServer, body: str, expected: str) -> None:
    response = httpx.post(f"{server.url}/v1/chat/completions", content=body)
    assert expected.lower() in refused(response)["message"].lower()
    ok_again(server)


@pytest.mark.parametrize("prompt", BAD_PROMPTS, ids=str)
def test_bad_prompts(server: RunningServer, prompt: Any) -> None:
    refused(httpx.post(f"{server.url}/v1/completions", json={"prompt": prompt, "max_tokens": 1}))
    ok_again(server)


def test_a_whole_pair_is_no_surrogate(server: RunningServer) -> None:
    """D26, the control."""
    body = r'{"messages": [{"role": "user", "content": "emoji \ud83d\ude00"}], "max_tokens": 1}'
    assert httpx.post(f"{server.url}/v1/chat/completions", content=body).status_code == 200


def test_context_limits_have_the_real_numbers(server: RunningServer) -> None:
    """D15: 511 of 512 leave one token, 512 and 513 are refused, so is an explicit sum over the context."""

    def ask(tokens: int, **more: Any) -> httpx.Response:
        return httpx.post(f"{server.url}/v1/completions", json={"prompt": [7] * tokens, **more})

    answer = ask(511, ignore_eos=True).json()
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"
    for tokens, more in ((512, {}), (513, {}), (500, {"max_tokens": 13})):
        error = refused(ask(tokens, **more))
        assert error["code"] == "context_length_exceeded"
        assert "512" in error["message"]
        assert str(tokens) in error["message"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "other", "prompt": "x"}, 404, "model_not_found"),
        ({"prompt": "x", "suffix": "y"}, 400, "invalid_request"),
        ({"prompt": "x", "best_of": 3}, 400, "invalid_request"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, 400, "invalid_request"),
    ],
)
def test_what_is_not_served(server: RunningServer, body: dict[str, Any], status: int, code: str) -> None:
    assert refused(httpx.post(f"{server.url}/v1/completions", json=body), status)["code"] == code


def test_a_huge_body_is_refused(server: RunningServer) -> None:
    error = refused(httpx.post(f"{server.url}/v1/completions", content=b" " * (11 << 20)))
    assert "10485760" in error["message"]
    ok_again(server)


def test_unknown_routes_and_methods(server: RunningServer) -> None:
    assert httpx.get(f"{server.url}/v1/nothing").status_code == 404
    assert refused(httpx.get(f"{server.url}/v1/completions"), 405)["code"] == "method_not_allowed"
