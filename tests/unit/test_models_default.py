"""The default model against `transformers` (eager), which dequantises the same GGUF file itself."""

from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
import torch

from default_model import default_model_file
from paged_runner import PagedRunner
from pagurid.weights import LoadedModel, load_model

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4
NUM_GREEDY_TOKENS = 200
QUESTIONS = [
    "What is the capital of France?",
    "Tell me a story about a hermit crab that is looking for a new shell.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Explain why the sky is blue, in three sentences.",
    "List ten animals that live in the sea, with one fact about each.",
]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(default_model_file())


@pytest.fixture(scope="module")
def reference() -> Any:
    transformers = pytest.importorskip("transformers")
    file = default_model_file()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@pytest.fixture(scope="module")
def prompts(loaded: LoadedModel) -> dict[str, list[int]]:
    tokenizer = loaded.tokenizer
    return {
        question: tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": question}]))
        for question in QUESTIONS
    }


def reference_logits(reference: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = reference(torch.tensor([token_ids])).logits[0]
    return logits


def test_logits_equal_transformers(
    loaded: LoadedModel, reference: Any, prompts: dict[str, list[int]]
) -> None:
    """Every prompt in one batch, and the longest in chunks: within 1e-4 of float64 at every position.

    `transformers` in float32 is itself 1e-4 away, on some machines.
    """
    reference = copy.deepcopy(reference).double()
    expected = {key: reference_logits(reference, prompt) for key, prompt in prompts.items()}
    logits = PagedRunner(loaded.model).step(prompts, all_rows=True)
    assert (logits - torch.cat([expected[key] for key in prompts])).abs().max() < TOLERANCE
    key = max(prompts, key=lambda question: len(prompts[question]))
    runner = PagedRunner(loaded.model)
    for start in range(0, len(prompts[key]), 16):
        chunk = prompts[key][start : start + 16]
        logits = runner.step({key: chunk}, all_rows=True)
        assert (logits - expected[key][start : start + len(chunk)]).abs().max() < TOLERANCE


def test_int16_activations_are_closer_to_float32_than_float16_weights_are(
    loaded: LoadedModel, prompts: dict[str, list[int]]
) -> None:
    """Mean Kullback-Leibler divergence over all positions; float16 weights have 2e-6. And what int8 costs."""
    exact = PagedRunner(loaded.model).step(prompts, all_rows=True).double().log_softmax(-1)

    def divergence(quantization: Literal["int16", "int8"]) -> float:
        model = load_model(default_model_file(), quantization=quantization).model
        got = PagedRunner(model).step(prompts, all_rows=True).double().log_softmax(-1)
        return float((exact.exp() * (exact - got)).sum(-1).mean())

    assert divergence("int16") < 1e-6
    assert 1e-5 < divergence("int8") < 2e-2


@pytest.mark.parametrize("quantization", ["none", "int16"])
def test_greedy_text_equals_transformers(
    loaded: LoadedModel,
    reference: Any,
    prompts: dict[str, list[int]],
    quantization: Literal["none", "int16"],
) -> None:
    """200 greedy tokens of five prompts are those that transformers would choose.

    One forward pass of the reference over prompt and answer shows its choice at every step, given the same
    tokens before it: by induction the two texts are the same.
    """
    if quantization != "none":
        loaded = load_model(default_model_file(), quantization=quantization)
    outputs = PagedRunner(loaded.model).greedy(prompts, NUM_GREEDY_TOKENS)
    for key, prompt in prompts.items():
        answer = outputs[key]
        logits = reference_logits(reference, prompt + answer[:-1])[len(prompt) - 1 :]
        assert logits.argmax(dim=-1).tolist() == answer, key
