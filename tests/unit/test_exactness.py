"""The promise: a request's tokens, text and log-probabilities never depend on what else the engine does.

Alone, in a batch, in small or large chunks, from a hot or a cold prefix cache, preempted or not:
equal to the bit.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from default_model import default_model_file
from pagurid import LLM, SamplingParams

if TYPE_CHECKING:
    from pathlib import Path

    from pagurid import RequestOutput

Answer = tuple[list[int], str, list[Any] | None, str | None]

NUM_REQUESTS = 32
TOKENS = 24


def prompts_of(vocab_size: int) -> list[list[int]]:
    """Of 1 to 100 tokens; every fourth begins as its neighbour does, so that blocks are shared."""
    rng = random.Random(7)
    prompts: list[list[int]] = []
    for number in range(NUM_REQUESTS):
        head = prompts[-1][:40] if number % 4 == 3 else []
        prompts.append(head + [rng.randrange(3, vocab_size) for _ in range(rng.choice([1, 5, 17, 33, 60]))])
    return prompts


def params_of(number: int) -> SamplingParams:
    """Greedy, seeded, penalised and with log-probabilities in turn."""
    common = {"max_tokens": TOKENS, "ignore_eos": True}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": number, "top_p": 0.9},
        {
            "temperature": 1.1,
            "seed": number,
            "top_k": 20,
            "repetition_penalty": 1.3,
            "frequency_penalty": 0.5,
        },
        {"temperature": 0.7, "seed": number, "min_p": 0.02, "presence_penalty": 0.4, "logprobs": 3},
    ]
    return SamplingParams(**common, **kinds[number % len(kinds)])


PARAMS = [params_of(number) for number in range(NUM_REQUESTS)]


def answer_of(output: RequestOutput) -> Answer:
    [answer] = output.outputs
    logprobs = (
        None
        if answer.logprobs is None
        else [(entry.token_id, entry.logprob, entry.top) for entry in answer.logprobs]
    )
    return answer.token_ids, answer.text, logprobs, answer.finish_reason


def run(llm: LLM, prompts: list[list[int]], params: list[SamplingParams]) -> list[Answer]:
    outputs = llm.generate(prompts, params)
    llm.check_invariants(idle=True)
    return [answer_of(output) for output in outputs]


def engine(model: Path, **options: Any) -> LLM:
    settings = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "num_gpu_blocks_override": 600}
    return LLM(str(model), **{"max_model_len": 256, **settings, **options})


@pytest.fixture(scope="module")
def alone(tiny_model_dir: Path) -> tuple[list[list[int]], list[Answer]]:
    """Each request by itself, with nothing cached: what all others are held to."""
    llm = engine(tiny_model_dir, enable_prefix_caching=False)
    prompts = prompts_of(llm.tokenizer.vocab_size)
    return prompts, [run(llm, [prompt], [params])[0] for prompt, params in zip(prompts, PARAMS, strict=True)]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="batch-of-32"),
        pytest.param({"max_num_seqs": 16, "max_num_batched_tokens": 16}, id="chunks-of-16"),
        pytest.param({"max_num_batched_tokens": 512}, id="chunks-of-512"),
        pytest.param({"max_num_seqs": 3, "max_num_batched_tokens": 7}, id="three-at-a-time"),
        pytest.param({"enable_prefix_caching": False}, id="no-cache"),
    ],
)
def test_batched_equals_alone(
    tiny_model_dir: Path, alone: tuple[list[list[int]], list[Answer]], options: dict[str, Any]
) -> None:
    prompts, expected = alone
    assert run(engine(tiny_model_dir, **options), prompts, PARAMS) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_batched_equals_alone_with_weights_of_16_bits(tiny_model_dir: Path, dtype: str) -> None:
    llm = engine(tiny_model_dir, enable_prefix_caching=False, dtype=dtype)
    prompts = prompts_of(llm.tokenizer.vocab_size)
    alone = [run(llm, [prompt], [params])[0] for prompt, params in zip(prompts, PARAMS, strict=True)]
    assert run(engine(tiny_model_dir, dtype=dtype), prompts, PARAMS) == alone
    small_chunks = {"max_num_seqs": 3, "max_num_batched_tokens": 7}
    assert run(engine(tiny_model_dir, dtype=dtype, **small_chunks), prompts, PARAMS) == alone


def test_hot_cache_equals_cold(tiny_model_dir: Path, alone: tuple[list[list[int]], list[Answer]]) -> None:
    prompts, expected = alone
    llm = engine(tiny_model_dir)
    assert run(llm, prompts, PARAMS) == expected
    hits = llm.stats().cached_tokens
    assert run(llm, prompts, PARAMS) == expected
    # Whole blocks, and never the last token (D16).
    assert llm.stats().cached_tokens == hits + sum((len(prompt) - 1) // 16 * 16 for prompt in prompts)


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_preempted_equals_alone(
    tiny_model_dir: Path, alone: tuple[list[list[int]], list[Answer]], enable_prefix_caching: bool
) -> None:
    """D10, D11: penalties and seeds survive a preemption too."""
    prompts, expected = alone
    llm = engine(tiny_model_dir, num_gpu_blocks_override=24, enable_prefix_caching=enable_prefix_caching)
    assert run(llm, prompts, PARAMS) == expected
    assert llm.stats().preemptions > 0


def test_a_seed_holds_beside_requests_without_one(tiny_model_dir: Path) -> None:
    """D11: A with a seed is the same each time and in each slot; B without one varies."""
    llm = engine(tiny_model_dir)
    seeded = SamplingParams(seed=42, temperature=0.8, max_tokens=16, ignore_eos=True)
    free = SamplingParams(temperature=0.8, max_tokens=16, ignore_eos=True)
    prompt = [5, 6, 7, 8]
    expected = run(llm, [prompt], [seeded])[0]
    others = set()
    for slot in (0, 3, 1, 2):
        params = [free] * 4
        params[slot] = seeded
        answers = run(llm, [prompt] * 4, params)
        assert answers[slot] == expected
        others |= {tuple(answer[0]) for number, answer in enumerate(answers) if number != slot}
    assert len(others) == 12


def test_parallel_answers_differ_and_repeat(tiny_model_dir: Path) -> None:
    llm = engine(tiny_model_dir)
    params = SamplingParams(n=4, seed=1, temperature=1.0, max_tokens=12, ignore_eos=True)
    [first] = llm.generate([[9, 8, 7] * 12], params)
    [second] = llm.generate([[9, 8, 7] * 12], params)
    texts = [answer.token_ids for answer in first.outputs]
    assert texts == [answer.token_ids for answer in second.outputs]
    assert len({tuple(tokens) for tokens in texts}) == 4
    assert first.metrics is not None
    assert first.metrics.completion_tokens == 48


@pytest.mark.slow
def test_the_default_model_keeps_the_promise() -> None:
    """On real weights, where near ties are real: alone, batched, chunked and preempted."""
    texts = [
        "The capital of France is",
        "def fibonacci(n):\n",
        "Once upon a time, in a village by the sea,",
        "1 2 3 4 5 6 7",
    ]
    params = [SamplingParams(temperature=0.0, max_tokens=32), SamplingParams(seed=3, max_tokens=32)] * 4
    prompts = texts * 2
    file = str(default_model_file())

    def answers(**options: Any) -> list[Answer]:
        llm = LLM(file, **{"max_model_len": 512, "num_gpu_blocks_override": 200, **options})
        outputs = llm.generate(prompts, params)
        if "num_gpu_blocks_override" in options:
            assert llm.stats().preemptions > 0
        return [answer_of(output) for output in outputs]

    expected = answers(max_num_seqs=1, enable_prefix_caching=False)
    assert "Paris" in expected[0][1]
    assert answers() == expected
    assert answers(max_num_seqs=8, max_num_batched_tokens=16) == expected
    assert answers(max_num_seqs=8, num_gpu_blocks_override=14) == expected
