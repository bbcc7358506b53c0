"""The model is made to say things, through the real engine and server: broken bytes, stop strings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import torch

from conftest import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import RunningServer

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def scripted(tiny_model_dir: Path) -> Iterator[RunningServer]:
    with running_server(tiny_model_dir, enforce_eager=True) as server:
        yield server


def say(server: RunningServer, said: bytes) -> list[int]:
    """From now on the model gives all its probability to one token after another: one per byte."""
    engine = server.llm._engine
    token_bytes = server.llm.tokenizer.vocabulary_data().token_bytes
    tokens = [token_bytes.index(bytes([byte])) for byte in said]
    plan = engine.scheduler.step_plan

    def forward() -> torch.Tensor:
        logits = torch.zeros(plan.num_logits_rows, engine.model_config.vocab_size)
        for number, row in enumerate(plan.logits_rows[: plan.num_logits_rows]):
            place = int(plan.positions[row]) - (len(PROMPT) - 1)
            logits[number, tokens[min(place, len(tokens) - 1)]] = 50.0
        return logits

    engine.runner.forward = forward  # type: ignore[method-assign]
    return tokens


def answers(server: RunningServer, **body: Any) -> tuple[dict[str, Any], str]:
    """The whole answer's choice, and the text of the streamed one."""
    request = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True, **body}
    whole = httpx.post(f"{server.url}/v1/completions", json=request)
    assert whole.status_code == 200, whole.text
    choice: dict[str, Any] = whole.json()["choices"][0]
    pieces = []
    with httpx.stream("POST", f"{server.url}/v1/completions", json={**request, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                assert "error" not in event
                pieces.append(event["choices"][0]["text"])
    for piece in pieces[:-1]:
        piece.encode()
    return choice, "".join(pieces)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"\xe3\x81'ok", "\ufffd'ok"),
        (b"\xe3\x81\\ok", "\ufffd\\ok"),
        (b"\xc0\x80ok", "\ufffd\ufffdok"),
        (b"\xed\xa0\x80ok", "\ufffd\ufffd\ufffdok"),
        (b"\xf4\x90\x80\x80ok", "\ufffd\ufffd\ufffd\ufffdok"),
        (b"ok\xf0\x9f", "ok\ufffd"),
        ("客单价 🫠🥹 👩‍👩‍👧".encode(), "客单价 🫠🥹 👩‍👩‍👧"),
    ],
)
def test_bytes_become_the_same_text_whole_and_streamed(
    scripted: RunningServer, said: bytes, expected: str
) -> None:
    """D01, D02: no half characters, broken ones become U+FFFD, pending ones are flushed at the end."""
    say(scripted, said)
    choice, streamed = answers(scripted, max_tokens=len(said))
    assert choice["text"] == streamed == expected == said.decode(errors="replace")
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("stop", "include", "expected", "reason"),
    [
        ("DEFGHIJ", False, "", "stop"),
        ("DE", False, "", "stop"),
        ("DEFX", False, "DEFGHIJ客!", "length"),
        ("HI", False, "DEFG", "stop"),
        ("HI", True, "DEFGHI", "stop"),
        (["X", "客"], False, "DEFGHIJ", "stop"),
        ([], False, "DEFGHIJ客!", "length"),
        (None, False, "DEFGHIJ客!", "length"),
    ],
)
def test_stop_strings(scripted: RunningServer, stop: Any, include: bool, expected: str, reason: str) -> None:
    """D06, D07: over token borders, nothing leaks, nothing is lost."""
    said = "DEFGHIJ客!".encode()
    say(scripted, said)
    body = {"stop": stop, "include_stop_str_in_output": include}
    choice, streamed = answers(scripted, max_tokens=len(said), **body)
    assert choice["text"] == streamed == expected
    assert choice["finish_reason"] == reason


def test_penalties_from_the_first_token_on(scripted: RunningServer) -> None:
    """D10: repetition counts the prompt at once; presence and frequency do not count it at all."""
    engine = scripted.llm._engine
    favourite, second = PROMPT[0], 40
    plan = engine.scheduler.step_plan

    def forward() -> torch.Tensor:
        logits = torch.zeros(plan.num_logits_rows, engine.model_config.vocab_size)
        logits[:, favourite], logits[:, second] = 6.0, 5.0
        return logits

    engine.runner.forward = forward  # type: ignore[method-assign]

    def first_token(**penalty: float) -> int:
        request = {
            "prompt": PROMPT,
            "temperature": 0,
            "max_tokens": 1,
            "ignore_eos": True,
            "logprobs": 0,
            **penalty,
        }
        answer = httpx.post(f"{scripted.url}/v1/completions", json=request).json()
        token_bytes = scripted.llm.tokenizer.vocabulary_data().token_bytes
        [token] = answer["choices"][0]["logprobs"]["tokens"]
        return favourite if token == token_bytes[favourite].decode(errors="replace") else second

    assert first_token() == favourite
    assert first_token(repetition_penalty=1.5) == second
    assert first_token(presence_penalty=2.0, frequency_penalty=2.0) == favourite


def test_a_row_of_nan_ends_its_request_only(scripted: RunningServer) -> None:
    engine = scripted.llm._engine
    plan = engine.scheduler.step_plan

    def forward() -> torch.Tensor:
        return torch.full((plan.num_logits_rows, engine.model_config.vocab_size), float("nan"))

    engine.runner.forward = forward  # type: ignore[method-assign]
    broken = httpx.post(f"{scripted.url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 3})
    assert broken.status_code == 500
    assert "logit" in broken.json()["error"]["message"]
    say(scripted, b"fine")
    assert answers(scripted, max_tokens=4)[0]["text"] == "fine"
    scripted.wait_until_idle()
