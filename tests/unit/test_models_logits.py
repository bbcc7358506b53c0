"""The forward pass against `transformers` (float32, eager) on tiny random models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from paged_runner import PagedRunner
from pagurid.weights import LoadedModel, load_model
from tiny_models import LLAMA3_ROPE_SCALING, TinyModel, make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

TOLERANCE = 1e-4

VARIANTS = {
    "tied": TinyModel(),
    "untied": TinyModel(tied=False, seed=1),
    "llama3_rope": TinyModel(rope_scaling=LLAMA3_ROPE_SCALING, rope_theta=500000.0, seed=2),
    "linear_rope": TinyModel(rope_scaling={"rope_type": "linear", "factor": 4.0}, seed=3),
    "rope_parameters": TinyModel(
        extra_config={"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "rope_theta": None},
        seed=4,
    ),
    "one_kv_head_wide_heads": TinyModel(num_heads=8, num_kv_heads=1, head_dim=32, tied=False, seed=5),
    "all_heads_kv": TinyModel(num_kv_heads=4, seed=6),
    "biases": TinyModel(attention_bias=True, mlp_bias=True, seed=7),
    "bfloat16_file": TinyModel(dtype=torch.bfloat16, seed=8),
    "float16_file": TinyModel(dtype=torch.float16, seed=9),
    "mistral": TinyModel(architecture="MistralForCausalLM", tied=False, seed=10),
    "qwen2": TinyModel(architecture="Qwen2ForCausalLM", attention_bias=True, seed=11),
    "qwen3": TinyModel(architecture="Qwen3ForCausalLM", qk_norm=True, tied=False, seed=12),
    "three_shards": TinyModel(num_shards=3, tied=False, seed=13),
}


@pytest.fixture(params=VARIANTS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LoadedModel, Any]:
    """One model, loaded by Pagurid and by transformers."""
    directory = make_tiny_model(tmp_path / "tiny", VARIANTS[request.param])
    return load_model(directory), reference_model(directory)


def reference_model(directory: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def reference_logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


def random_prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 440, (length,), generator=generator).tolist()


def test_logits_equal_transformers(pair: tuple[LoadedModel, Any]) -> None:
    """Prefill in one pass, in chunks beside another sequence, and token by token: the same logits."""
    loaded, reference = pair
    prompt, other = random_prompt(75), random_prompt(45, seed=1)
    expected, expected_other = reference_logits(reference, prompt), reference_logits(reference, other)
    assert expected.std() > 0.5, "the reference must say something"

    whole = PagedRunner(loaded.model).step({"a": prompt}, all_rows=True)
    assert (whole - expected).abs().max() < TOLERANCE

    runner = PagedRunner(loaded.model, seed=3)
    for start in range(0, 60, 20):
        chunk = {"a": prompt[start : start + 20], "b": other[start // 2 : start // 2 + 10]}
        logits = runner.step(chunk)
        assert (logits[0] - expected[start + 19]).abs().max() < TOLERANCE
        assert (logits[1] - expected_other[start // 2 + 9]).abs().max() < TOLERANCE
    for position in range(60, 75):
        logits = runner.step({"b": [other[position - 30]], "a": [prompt[position]]})
        assert (logits[1] - expected[position]).abs().max() < TOLERANCE
        assert (logits[0] - expected_other[position - 30]).abs().max() < TOLERANCE


def test_greedy_text_equals_transformers(tmp_path: Path) -> None:
    """Two hundred greedy tokens of three prompts in one batch are those of transformers, one by one."""
    directory = make_tiny_model(tmp_path / "tiny")
    loaded, reference = load_model(directory), reference_model(directory)
    prompts = {str(length): random_prompt(length, seed=length) for length in (3, 17, 40)}
    outputs = PagedRunner(loaded.model).greedy(prompts, 200)
    for key, prompt in prompts.items():
        generated = reference.generate(
            torch.tensor([prompt]), max_new_tokens=200, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        assert outputs[key] == generated[0, len(prompt) :].tolist()


def test_reference_and_rust_kernels_agree(tmp_path: Path) -> None:
    """`kernels="reference"` gives the same logits but for rounding."""
    directory = make_tiny_model(tmp_path / "tiny", tied=False)
    prompt = random_prompt(50)
    by_kernels = []
    for kernels in ("reference", "rust"):
        loaded = load_model(directory, kernels=kernels)  # the last one stays selected for other tests
        by_kernels.append(PagedRunner(loaded.model).step({"a": prompt}, all_rows=True))
    assert (by_kernels[0] - by_kernels[1]).abs().max() < TOLERANCE
