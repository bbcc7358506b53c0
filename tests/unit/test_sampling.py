"""`_core.sample` against a float64 sampler in numpy, and the limits of `SamplingParams`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pagurid._core import Detokenizer, SamplingParams, Vocabulary, sample
from pagurid.errors import InvalidRequest

RNG = np.random.default_rng(5)


def law(logits: np.ndarray[Any, Any], params: SamplingParams) -> np.ndarray[Any, Any]:
    """Probabilities from the definition: temperature, top_k, top_p, min_p."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    weights = np.exp((logits.astype(np.float64) - logits.max()) / params.temperature)
    keep = order[: params.top_k] if params.top_k > 0 else order
    share = np.cumsum(weights[keep]) / weights[keep].sum()
    keep = keep[: int(np.searchsorted(share, params.top_p)) + 1]
    keep = keep[weights[keep] >= params.min_p]
    result = np.zeros(len(logits))
    result[keep] = weights[keep] / weights[keep].sum()
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.0, "top_k": 7},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 1.4, "top_k": 30, "top_p": 0.85, "min_p": 0.02},
    ],
)
def test_draws_follow_the_law(options: dict[str, Any]) -> None:
    params = SamplingParams(**options)
    logits = RNG.normal(0, 2, 60).astype(np.float32)
    draws = 30_000
    counts = np.bincount([sample(logits, params, seed=9, position=p) for p in range(draws)], minlength=60)
    expected = law(logits, params) * draws
    assert counts[expected == 0].sum() == 0
    cells = expected >= 5
    chi2 = float(((counts[cells] - expected[cells]) ** 2 / expected[cells]).sum())
    freedom = max(int(cells.sum()) - 1, 1)
    assert chi2 < freedom + 6 * (2 * freedom) ** 0.5 + 10


def test_a_draw_is_a_pure_function_of_seed_sequence_and_position() -> None:
    logits = RNG.normal(0, 1, 500).astype(np.float32)
    params = SamplingParams()
    draws = {
        (seed, index, position): sample(logits, params, seed=seed, position=position, sequence_index=index)
        for seed in (0, 1, 2**63)
        for index in (0, 1)
        for position in range(20)
    }
    for (seed, index, position), token in draws.items():
        again = sample(logits, params, seed=seed, position=position, sequence_index=index)
        assert again == token
    assert len(set(draws.values())) > 60


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = np.zeros(100, dtype=np.float32)
    logits[[20, 30]] = 1.0
    for temperature in (0.0, 1e-6, 1e-38):
        assert sample(logits, SamplingParams(temperature=temperature), seed=1, position=0) == 20


def test_penalties_and_bias() -> None:
    """D10"""
    logits = np.array([3.0, 2.9, -1.0], dtype=np.float32)

    def first(**options: Any) -> int:
        context = options.pop("context", {})
        return sample(logits, SamplingParams(temperature=0, **options), seed=0, position=0, **context)

    prompt, output = {"prompt_token_ids": [0, 0, 0]}, {"output_token_ids": [0]}
    assert first() == 0
    assert first(repetition_penalty=1.5, context=prompt) == 1
    assert first(presence_penalty=2.0, frequency_penalty=2.0, context=prompt) == 0
    assert first(presence_penalty=0.5, context=output) == 1
    assert first(frequency_penalty=0.5, context=output) == 1
    assert first(logit_bias={2: 10.0}) == 2


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"seed": 2**64}, "seed"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ],
)
def test_each_limit_names_its_parameter(options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**options)
    assert caught.value.param == param
    assert "got" in str(caught.value)


def test_defaults_and_equality() -> None:
    assert SamplingParams() == SamplingParams(n=1, stop=[], stop_token_ids=[])
    assert SamplingParams(stop="x").stop == ["x"]
    assert SamplingParams(seed=-1).seed == 2**64 - 1
    assert SamplingParams(seed=1) != SamplingParams(seed=2)


@pytest.mark.parametrize("cuts", range(1, 12))
def test_split_characters_leave_whole_at_every_split(cuts: int) -> None:
    """D01, D04: the pieces are a prefix of the text at all times, and all of it in the end."""
    text = "客单价 🫠 é »"
    raw = text.encode()
    tokens = [raw[at : at + cuts] for at in range(0, len(raw), cuts)]
    vocabulary = Vocabulary(tokens)
    detokenizer = Detokenizer(vocabulary)
    so_far = ""
    for token_id in range(len(tokens)):
        so_far += detokenizer.push(token_id)
        assert text.startswith(so_far)
    assert so_far + detokenizer.finish() == text == vocabulary.decode(range(len(tokens)))


def test_byte_fallback_tokens_are_never_taken_back() -> None:
    """D04: <0x20>, <0xE2>, <0x82>, then »."""
    detokenizer = Detokenizer(Vocabulary([b" ", b"\xe2", b"\x82", "»".encode()]))
    assert [detokenizer.push(token_id) for token_id in range(4)] == [" ", "", "", "\ufffd»"]


def test_added_tokens_bring_no_spaces() -> None:
    """D05"""
    vocabulary = Vocabulary([b"<think>", b"ok", b"</think>", b"1", b"<eos>"], special_token_ids=[4])
    assert vocabulary.decode([0, 1, 2, 3, 4]) == "<think>ok</think>1"
    assert vocabulary.decode([3, 4], skip_special_tokens=False) == "1<eos>"


def test_a_row_that_no_vocabulary_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="logits: expected at most 8388608 numbers, got 8388609"):
        sample(np.zeros(2**23 + 1, dtype=np.float32), SamplingParams(), seed=1, position=0)
