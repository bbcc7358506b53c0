"""`--dtype`: what weights are kept in, what they take, and that the numbers stay what the file says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

from paged_runner import PagedRunner
from pagurid import LLM
from pagurid.errors import ConfigError, ModelLoadError
from pagurid.weights import LoadedModel, load_model
from tiny_gguf import write_tiny_gguf
from tiny_models import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from pagurid.config import Dtype

TOLERANCE = 1e-4
PROMPT = [298, 275, 336, 33, 17, 90, 301, 44, 205, 7, 8, 150, 440, 33, 60, 61, 62, 301, 302, 12]
DTYPES: dict[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    return PagedRunner(loaded.model).step({"a": PROMPT}, all_rows=True)


def weights_of(loaded: LoadedModel) -> list[torch.Tensor]:
    weights = [linear.weight for linear, _ in loaded.model.linear_parts()]
    assert all(isinstance(weight, torch.Tensor) for weight in weights)
    return weights  # type: ignore[return-value]


def is_in_file(weight: torch.Tensor, file: Path) -> bool:
    """Whether its memory is that file's."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(file)):
            begin, end = (int(address, 16) for address in re.split("[- ]", line)[:2])
            if begin <= weight.data_ptr() < end:
                return True
    return False


@pytest.mark.parametrize("file_dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_a_file_of_16_bits_stays_as_it_is(tmp_path: Path, file_dtype: torch.dtype, tied: bool) -> None:
    """Half the bytes, and the same logits as with all weights widened: widening is exact."""
    directory = make_tiny_model(tmp_path / "tiny", dtype=file_dtype, tied=tied)
    kept, widened = load_model(directory), load_model(directory, dtype="float32")
    assert {weight.dtype for weight in weights_of(kept)} == {file_dtype}
    assert {weight.dtype for weight in weights_of(widened)} == {torch.float32}
    sizes = [sum(weight.nbytes for weight in weights_of(loaded)) for loaded in (kept, widened)]
    assert 2 * sizes[0] == sizes[1]
    assert torch.equal(logits_of(kept), logits_of(widened))


@pytest.mark.parametrize("file_dtype", [torch.bfloat16, torch.float16], ids=str)
def test_logits_are_those_of_float64(tmp_path: Path, file_dtype: torch.dtype) -> None:
    """With the file's rounded weights, all else in float64."""
    transformers = pytest.importorskip("transformers")
    directory = make_tiny_model(tmp_path / "tiny", dtype=file_dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="eager"
    )
    with torch.inference_mode():
        expected = model.eval()(torch.tensor([PROMPT])).logits[0]
    assert (logits_of(load_model(directory)) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversion_rounds_each_weight_once(tmp_path: Path, dtype: Dtype) -> None:
    """A float32 file loaded as `dtype` is the file that was rounded to it before."""
    directory = make_tiny_model(tmp_path / "tiny", tied=False, attention_bias=True)
    rounded = make_tiny_model(tmp_path / "rounded", tied=False, attention_bias=True)
    tensors = load_file(directory / "model.safetensors")
    linears = {name: tensor.to(DTYPES[dtype]) for name, tensor in tensors.items() if tensor.dim() == 2}
    save_file(tensors | linears, rounded / "model.safetensors")
    loaded = load_model(directory, dtype=dtype)
    assert {weight.dtype for weight in weights_of(loaded)} == {DTYPES[dtype]}
    assert torch.equal(logits_of(loaded), logits_of(load_model(rounded)))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is mapped where")
def test_what_is_neither_merged_nor_converted_is_mapped(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "tiny", dtype=torch.bfloat16)
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), Kind.F16)
    for path, mapped in ((directory, directory / "model.safetensors"), (file, file)):
        model = load_model(path).model
        for linear in (model.embedding, model.layers[1].attention_out, model.layers[1].down):
            assert is_in_file(linear.weight, mapped)
        for linear in (model.layers[1].qkv, model.layers[1].gate_up):
            assert not is_in_file(linear.weight, mapped)
        assert not is_in_file(load_model(path, dtype="float32").model.embedding.weight, mapped)


def test_tensors_of_several_types_in_one_layer_become_float32(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "tiny", dtype=torch.bfloat16)
    expected = logits_of(load_model(directory))
    tensors = load_file(directory / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj.weight"
    save_file(tensors | {name: tensors[name].float()}, directory / "model.safetensors")
    loaded = load_model(directory)
    assert loaded.model.layers[0].qkv.weight.dtype is torch.float32
    assert loaded.model.layers[1].qkv.weight.dtype is torch.bfloat16
    assert torch.equal(logits_of(loaded), expected)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16], ids=lambda kind: kind.name)
def test_gguf_floats(tmp_path: Path, kind: Kind) -> None:
    """Kept as they are, also where q and k change the order of their rows."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), kind)
    loaded = load_model(file)
    expected = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}[kind]
    assert {weight.dtype for weight in weights_of(loaded)} == {expected}
    assert torch.equal(logits_of(loaded), logits_of(load_model(file, dtype="float32")))


def test_quantised_weights_follow_quantization_first(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), Kind.Q8_0)
    packed = load_model(file, quantization="auto", dtype="bfloat16").model
    assert not any(isinstance(linear.weight, torch.Tensor) for linear, _ in packed.linear_parts())
    for dtype, expected in (("auto", torch.float32), ("float16", torch.float16)):
        loaded = load_model(file, quantization="none", dtype=dtype)
        assert {weight.dtype for weight in weights_of(loaded)} == {expected}


def test_numbers_too_large_for_float16_are_refused(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "tiny", dtype=torch.bfloat16)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = -1e5
    save_file(tensors, directory / "model.safetensors")
    load_model(directory)
    with pytest.raises(ModelLoadError, match=r"layers.0.mlp.up_proj.weight holds .* 99840, float16 ends at"):
        load_model(directory, dtype="float16")


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="--dtype is 'int4'; expected one of auto, float32, bfloat16, float16"
    ):
        LLM(str(make_tiny_model(tmp_path / "tiny")), dtype="int4")
