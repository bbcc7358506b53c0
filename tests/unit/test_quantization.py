"""Quantised weights that stay as their file has them: what they stand for, and whose rows are whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from paged_runner import PagedRunner
from pagurid import ops
from pagurid.errors import ModelLoadError
from pagurid.ops import QuantizedWeight
from pagurid.weights import LoadedModel, load_model
from tiny_gguf import write_tiny_gguf
from tiny_models import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]
PROMPT = [298, 275, 336, 33, 17, 90, 301, 44, 205, 7, 8, 150, 440, 33, 60, 61, 62, 301, 302, 12]


@pytest.fixture(autouse=True)
def rust_kernels() -> Iterator[None]:
    yield
    ops.select("rust")


def random_blocks(kind: Kind, rows: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Blocks of random codes [rows, bytes]; their scales are small floats."""
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (rows * width // block_len, block_bytes), dtype=np.uint8)
    halves = {Kind.Q6_K: [208], Kind.Q4_0: [0], Kind.Q5_0: [0], Kind.Q8_0: [0]}.get(kind, [0, 2])
    for at in halves:
        scales = rng.normal(0, 0.01, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def weight_of(
    kind: Kind,
    blocks: np.ndarray[Any, np.dtype[np.uint8]],
    width: int,
    activations: Literal["int8", "int16"] = "int16",
    bias: torch.Tensor | None = None,
) -> QuantizedWeight:
    parts = [(kind.name, blocks.ctypes.data, blocks.nbytes, len(blocks), None)]
    return QuantizedWeight(parts, width, activations, None if bias is None else bias.data_ptr())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_are_what_the_gguf_library_reads(kind: Kind) -> None:
    blocks = random_blocks(kind, 21, 512)
    got = ops.embedding(torch.arange(21, dtype=torch.int32), weight_of(kind, blocks, 512))
    expected = torch.from_numpy(gguf.dequantize(blocks, kind).reshape(21, 512))
    torch.testing.assert_close(got, expected, atol=0, rtol=2e-7)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("activations", "tolerance"), [("int16", 1.5e-4), ("int8", 4e-2)])
def test_products_agree_with_the_reference(
    kind: Kind, activations: Literal["int8", "int16"], tolerance: float
) -> None:
    torch.manual_seed(0)
    bias = torch.randn(50)
    weight = weight_of(kind, random_blocks(kind, 50, 768), 768, activations, bias)
    x = torch.randn(11, 768)
    got = ops.quantized_linear(x, weight)
    ops.select("reference")
    expected = ops.quantized_linear(x, weight)
    assert (got - expected).abs().max() <= tolerance * (expected - bias).std()


def test_wrong_arguments_are_refused() -> None:
    weight = weight_of(Kind.Q4_1, random_blocks(Kind.Q4_1, 20, 64), 64)
    with pytest.raises(ValueError, match=r"\[T, in\] and W \[out, in\]; got \[2, 32\] and \[20, 64\]"):
        ops.quantized_linear(torch.zeros(2, 32), weight)
    with pytest.raises(ValueError, match=r"indices must be in 0\.\.20; got 20"):
        ops.embedding(torch.tensor([3, 20], dtype=torch.int32), weight)
    with pytest.raises(ValueError, match='activations must be int8 or int16; got "int4"'):
        weight_of(Kind.Q4_1, random_blocks(Kind.Q4_1, 20, 64), 64, "int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="type must be one of Q4_0"):
        weight_of(Kind.IQ4_NL, random_blocks(Kind.Q4_0, 20, 64), 64)
    with pytest.raises(ValueError, match="20 rows of 96 weights in Q4_1 are 1200 bytes; got 800"):
        weight_of(Kind.Q4_1, random_blocks(Kind.Q4_1, 20, 64), 96)


def wide(kind: Kind, **options: Any) -> TinyModel:
    width = 256 if kind.name.endswith("_K") else 64
    return TinyModel(hidden_size=width, intermediate_size=width, head_dim=width // 4, **options)


def loaded_as(file: Path, quantization: Literal["auto", "int16", "int8", "none"]) -> LoadedModel:
    return load_model(file, quantization=quantization)


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    return PagedRunner(loaded.model).step({"a": PROMPT}, all_rows=True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(Kind.Q4_1, {"num_kv_heads": 1}, id="tied"),
        pytest.param(Kind.Q8_0, {"tied": False}, id="untied"),
        pytest.param(Kind.Q4_0, {"attention_bias": True, "mlp_bias": True}, id="biases"),
        pytest.param(Kind.Q6_K, {"architecture": "Qwen3ForCausalLM", "qk_norm": True}, id="qwen3"),
        pytest.param(Kind.Q4_K, {"architecture": "MistralForCausalLM", "tied": False}, id="mistral"),
    ],
)
def test_int16_has_the_logits_of_the_dequantised_model(
    tmp_path: Path, kind: Kind, options: dict[str, Any]
) -> None:
    """Also that q and k rows are put in order, that biases are added once, and what int8 costs."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, wide(kind, **options), kind)
    exact = logits_of(loaded_as(file, "none"))
    auto = loaded_as(file, "auto")
    assert isinstance(auto.model.layers[0].qkv.weight, QuantizedWeight)
    assert auto.model.layers[0].qkv.weight.types == [kind.name] * 3
    scale = exact.std()
    assert (logits_of(auto) - exact).abs().max() < 2e-3 * scale
    assert 2e-3 * scale < (logits_of(loaded_as(file, "int8")) - exact).abs().max() < 0.3 * scale


def test_a_row_has_the_same_bits_in_any_batch(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, wide(Kind.Q4_1), Kind.Q4_1)
    for quantization in ("int16", "int8"):
        model = loaded_as(file, quantization).model  # type: ignore[arg-type]
        alone = PagedRunner(model).step({"a": PROMPT}, all_rows=True)
        batch = PagedRunner(model, seed=3).step(
            {"b": PROMPT[5:], "a": PROMPT, "c": PROMPT[:9]}, all_rows=True
        )
        assert torch.equal(batch[len(PROMPT) - 5 :][: len(PROMPT)], alone)
        runner = PagedRunner(model)
        chunks = [
            runner.step({"a": PROMPT[start:end]}, all_rows=True) for start, end in ((0, 7), (7, 8), (8, 20))
        ]
        assert torch.equal(torch.cat(chunks), alone)


def test_a_tied_head_is_one_weight(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, wide(Kind.Q8_0), Kind.Q8_0)
    model = loaded_as(file, "auto").model
    assert model.lm_head is model.embedding
    assert isinstance(model.embedding.weight, QuantizedWeight)


def test_asking_for_quantised_weights_that_are_not_there(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "floats")
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), Kind.F16)
    for path in (directory, file):
        loaded_as(path, "auto")
        with pytest.raises(
            ModelLoadError, match="--quantization int8 needs a GGUF file with quantised weights"
        ):
            loaded_as(path, "int8")
