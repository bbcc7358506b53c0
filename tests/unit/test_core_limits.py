"""The door of `_core.Scheduler`: every limit is checked, and the error says what came."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pagurid import _core
from pagurid.errors import ContextLengthExceeded, InternalError, InvalidRequest, Overloaded, QueueFull
from toy_model import VOCAB_SIZE, ToyEngine, answer, config, prompt


def test_a_prompt_that_can_never_fit_is_refused_and_the_next_is_served() -> None:
    """D13: 50 blocks of 16, a prompt of 1002 tokens; the edges 784 and 785."""
    engine = ToyEngine(config(num_blocks=50, block_size=16, max_model_len=2048, max_num_batched_tokens=512))
    for length in (1002, 785):
        with pytest.raises(ContextLengthExceeded, match=rf"{length} tokens.*784 tokens \(49 blocks of 16\)"):
            engine.submit(prompt(1, length))
    params = _core.SamplingParams()
    assert engine.scheduler.max_tokens_for(784, params) == 1
    assert engine.scheduler.max_tokens_for(10, params) == 775
    whole, short = engine.submit(prompt(1, 784)), engine.submit(prompt(2, 10), max_tokens=4, ignore_eos=True)
    engine.run()
    assert len(engine.answers[whole, 0].token_ids) == 1
    assert engine.answers[short, 0].token_ids == answer(prompt(2, 10), 4, ignore_eos=True)
    got, _ = engine.complete(prompt(3, 770), max_tokens=100, ignore_eos=True)
    assert (len(got.token_ids), got.finish_reason) == (15, "length"), "growth became impossible"


@pytest.mark.parametrize("empty", [[], (), np.zeros(0, np.int32)])
def test_an_empty_prompt_is_refused_and_the_next_request_works(empty: Any) -> None:
    """D14: zero tokens are an error that names the prompt; one token runs."""
    engine = ToyEngine(config())
    with pytest.raises(InvalidRequest, match="at least 1 token, got 0") as error:
        engine.submit(empty)
    assert error.value.param == "prompt"
    assert engine.complete([1], max_tokens=1)[0].token_ids == answer([1], 1)


@pytest.mark.parametrize(
    ("length", "max_tokens", "expected"),
    [(14, 1, 1), (14, None, 2), (15, 1, 1), (15, None, 1), (14, 10, 0), (15, 10, 0)]
    + [(length, max_tokens, 0) for length in (16, 17) for max_tokens in (1, 10, None)],
)
def test_the_edge_of_the_context(length: int, max_tokens: int | None, expected: int) -> None:
    """D15: a context of 16; an explicit prompt + max_tokens beyond it is refused with the real numbers."""
    engine = ToyEngine(config(max_model_len=16))
    if expected:
        got, _ = engine.complete(prompt(1, length), max_tokens=max_tokens, ignore_eos=True)
        assert (len(got.token_ids), got.finish_reason) == (expected, "length")
        return
    with pytest.raises(ContextLengthExceeded) as error:
        engine.submit(prompt(1, length), max_tokens=max_tokens)
    assert str(length) in error.value.message
    assert "16 tokens" in error.value.message


def test_age_counts_as_waiting() -> None:
    """Time at the door is part of queue time and of TTFT."""
    engine = ToyEngine(config())
    time.sleep(0.06)
    request_id = engine.scheduler.submit([1, 2], _core.SamplingParams(max_tokens=1), age_ms=50.0)
    engine.run()
    assert engine.metrics[request_id].queue_ms >= 50.0
    with pytest.raises(InvalidRequest, match="age_ms"):
        engine.scheduler.submit([1], _core.SamplingParams(), age_ms=-1.0)


def test_the_queue_is_bounded_and_closes() -> None:
    """QueueFull carries the bound and a hint; a closed scheduler finishes what it has."""
    engine = ToyEngine(config(max_queued_requests=2, max_num_seqs=1))
    for _ in range(2):
        engine.submit(prompt(1, 4), max_tokens=2)
    with pytest.raises(QueueFull, match="2 requests wait") as error:
        engine.submit(prompt(1, 4))
    assert error.value.retry_after_ms is not None
    assert engine.scheduler.stats().num_waiting == 2
    engine.scheduler.close()
    with pytest.raises(Overloaded):
        engine.submit(prompt(1, 4))
    engine.run()
    assert all(got.finish_reason in ("stop", "length") for got in engine.answers.values())


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, VOCAB_SIZE], r"0\.\.37, got 37 at position 1"),
        ([-1], r"0\.\.37, got -1 at position 0"),
        (np.array([1 << 40]), r"0\.\.37"),
        ([1 << 70], "sequence of token ids"),
        ("text", "sequence of token ids"),
        ([1.5], "sequence of token ids"),
        (None, "sequence of token ids"),
    ],
)
def test_bad_prompts_are_refused(tokens: Any, message: str) -> None:
    """The error says what was expected and what came."""
    engine = ToyEngine(config())
    with pytest.raises(InvalidRequest, match=message) as error:
        engine.submit(tokens)
    assert error.value.param == "prompt"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_blocks", 1),
        ("block_size", 0),
        ("max_model_len", 1),
        ("max_num_seqs", 0),
        ("max_num_seqs", 17),
        ("vocab_size", 0),
        ("eos_token_ids", [VOCAB_SIZE]),
        ("max_queued_requests", 0),
        ("cost_per_hour", float("nan")),
    ],
)
def test_sizes_are_checked(field: str, value: Any) -> None:
    """`InvalidRequest` names the field; a budget below the number of sequences is one of them."""
    with pytest.raises(InvalidRequest, match=field):
        config(**{field: value})


def test_calls_out_of_order_are_errors() -> None:
    """The engine's bugs get a name instead of a wrong answer."""
    engine = ToyEngine(config())
    scheduler = engine.scheduler
    with pytest.raises(InternalError, match="plan that returned True"):
        scheduler.commit()
    engine.submit([1, 2], max_tokens=2)
    assert scheduler.plan()
    with pytest.raises(InternalError, match="step was open"):
        scheduler.plan()
    with pytest.raises(InternalError, match="needs sample"):
        scheduler.commit()
    with pytest.raises(InternalError, match=r"\[1, 37\], got \[2, 37\]"):
        scheduler.sample(np.zeros((2, VOCAB_SIZE), np.float32))
    with pytest.raises(InternalError, match="contiguous"):
        scheduler.sample(np.zeros((1, 2 * VOCAB_SIZE), np.float32)[:, ::2])
    with pytest.raises(InternalError, match=r"0\.\.37, got 37"):
        scheduler.commit(np.array([VOCAB_SIZE], np.int32))
    scheduler.abort_step("enough")
    scheduler.abort_step("no step is open: nothing happens")
    engine.run()
    assert scheduler.stats().failed_steps == 1
