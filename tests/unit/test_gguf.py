"""GGUF files against their safetensors twins: the same numbers, the same logits, the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import save_file

from paged_runner import PagedRunner
from pagurid.errors import ModelLoadError
from pagurid.models.config import ModelConfig
from pagurid.models.rope import inverse_frequencies
from pagurid.weights import LoadedModel, load_model
from tiny_gguf import write_tiny_gguf
from tiny_models import LLAMA3_ROPE_SCALING, TinyModel, make_tiny_model, tiny_config

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = [298, 275, 336, 33, 17, 90, 301, 44, 205, 7, 8, 150, 440, 33, 60, 61, 62, 301, 302, 12]


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    return PagedRunner(loaded.model).step({"a": PROMPT}, all_rows=True)


def twins(tmp_path: Path, options: TinyModel, kind: Kind, **gguf: Any) -> tuple[LoadedModel, LoadedModel]:
    """The GGUF file, and a safetensors directory with exactly the weights that it stands for."""
    file = tmp_path / "tiny.gguf"
    weights = write_tiny_gguf(file, options, kind, **gguf)
    directory = make_tiny_model(tmp_path / "twin", options)
    save_file(weights, directory / "model.safetensors")
    return load_model(file), load_model(directory)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(TinyModel(num_kv_heads=1), id="llama_tied"),
        pytest.param(TinyModel(tied=False, num_heads=8, head_dim=8), id="llama_untied"),
        pytest.param(TinyModel(attention_bias=True, mlp_bias=True), id="llama_biases"),
        pytest.param(TinyModel(architecture="MistralForCausalLM", tied=False), id="mistral"),
        pytest.param(TinyModel(architecture="Qwen2ForCausalLM", attention_bias=True), id="qwen2"),
        pytest.param(TinyModel(architecture="Qwen3ForCausalLM", qk_norm=True), id="qwen3"),
    ],
)
def test_float32_file_has_the_logits_of_its_twin(tmp_path: Path, options: TinyModel) -> None:
    """D34: q and k rows are put back for the Llama family (heads ≠ kv heads) and left alone for Qwen."""
    from_gguf, from_safetensors = twins(tmp_path, options, Kind.F32)
    assert torch.equal(logits_of(from_gguf), logits_of(from_safetensors))


@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q4_K, Kind.Q6_K], ids=lambda k: k.name
)
def test_quantised_file_has_the_logits_of_its_dequantised_twin(tmp_path: Path, kind: Kind) -> None:
    """Each kind is dequantised row by row as the library does; K kinds have blocks of 256 columns."""
    wide = 256 if kind in (Kind.Q4_K, Kind.Q6_K) else 64
    options = TinyModel(hidden_size=wide, intermediate_size=wide, head_dim=wide // 4, tied=False)
    from_gguf, from_safetensors = twins(tmp_path, options, kind)
    logits = logits_of(from_gguf)
    assert logits.std() > 0.1
    assert torch.equal(logits, logits_of(from_safetensors))


def test_rope_factors_tensor_is_the_llama3_scaling(tmp_path: Path) -> None:
    """rope_freqs.weight divides each frequency by its own factor: so a converter stores llama3 scaling."""
    options = TinyModel(rope_scaling=LLAMA3_ROPE_SCALING)
    plain = ModelConfig.from_hf(tiny_config(TinyModel()))
    scaled = ModelConfig.from_hf(tiny_config(options))
    factors = (inverse_frequencies(plain) / inverse_frequencies(scaled)).numpy()
    from_gguf, from_safetensors = twins(tmp_path, options, Kind.F32, rope_factors=factors)
    assert (logits_of(from_gguf) - logits_of(from_safetensors)).abs().max() < 1e-4
    unscaled = load_model(make_tiny_model(tmp_path / "unscaled", TinyModel()))
    assert (logits_of(from_gguf) - logits_of(unscaled)).abs().max() > 1e-2


def test_linear_rope_scaling_key(tmp_path: Path) -> None:
    """llama.rope.scaling.type and .factor."""
    keys = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    options = TinyModel(rope_scaling={"type": "linear", "factor": 4.0})
    from_gguf, from_safetensors = twins(tmp_path, options, Kind.F32, metadata=keys)
    assert torch.equal(logits_of(from_gguf), logits_of(from_safetensors))


def test_config_equals_the_twins(tmp_path: Path) -> None:
    """Hyperparameters and end-of-sequence ids (D33: eos; by its spelling <|endoftext|>) of the metadata."""
    options = TinyModel(tied=False, rope_theta=500000.0)
    from_gguf, from_safetensors = twins(tmp_path, options, Kind.F32)
    fields = set(ModelConfig.__dataclass_fields__) - {"eos_token_ids", "rms_norm_eps"}
    for name in fields:
        assert getattr(from_gguf.config, name) == getattr(from_safetensors.config, name), name
    assert from_gguf.config.rms_norm_eps == pytest.approx(1e-5)
    assert from_gguf.config.eos_token_ids == {0, 2}
    assert from_gguf.name == "tiny"


def test_further_end_ids(tmp_path: Path) -> None:
    """D33: eot and eom of the metadata end a sequence too."""
    keys = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 7}
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), metadata=keys)
    assert load_model(file).config.eos_token_ids == {0, 2, 5, 7}


def test_tokenizer_equals_the_twins(tmp_path: Path) -> None:
    """The same ids, text and bytes as from tokenizer.json; padding tokens add nothing to a text."""
    from_gguf, from_safetensors = twins(tmp_path, TinyModel(), Kind.F32)
    ours, theirs = from_gguf.tokenizer, from_safetensors.tokenizer
    texts = [
        "What is the capital of France?",
        "<|im_start|>user\n12345 <think>ok</think><|im_end|>\n",
        "Déjà vu 日本語 🙂🦀\t\r\n  x",
        "",
    ]
    for text in texts:
        for parse_special in (True, False):
            ids = ours.encode(text, parse_special=parse_special)
            assert ids == theirs.encode(text, parse_special=parse_special)
    assert ours.vocabulary_data() == theirs.vocabulary_data()
    messages = [{"role": "user", "content": "Hello"}]
    assert ours.render_chat(messages) == theirs.render_chat(messages)
    assert ours.bos_token_id == theirs.bos_token_id == 1


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.rope.scaling.type": "yarn"}, r"rope.scaling.type 'yarn' is not supported"),
        ({"llama.expert_count": 8}, "mixture-of-experts"),
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count is 8; supported: 16"),
        ({"split.count": 2}, "one part of a split model"),
    ],
)
def test_unsupported_metadata_are_refused(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    """What would be computed wrongly is refused in one line that names the file and the key."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), metadata=metadata)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_model(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    """D31: no parameter is left unset, from GGUF either."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), leave_out=("blk.1.ffn_up.weight",))
    with pytest.raises(ModelLoadError, match=r"no tensor for model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(file)


def test_missing_head_of_a_gguf_is_tied(tmp_path: Path) -> None:
    """D32: without output.weight the logits use the embeddings."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(tied=False), leave_out=("output.weight",))
    loaded = load_model(file)
    assert loaded.config.tie_word_embeddings
    assert loaded.model.lm_head is loaded.model.embedding


@pytest.mark.parametrize("length", [0, 3, 100, 20_000])
def test_broken_files_are_refused(tmp_path: Path, length: int) -> None:
    """Cut off anywhere, or not GGUF at all: one line, no traceback of the library."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel())
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ModelLoadError, match="broken, incomplete or not GGUF"):
        load_model(file)


def test_unsupported_tensor_type_is_named(tmp_path: Path) -> None:
    """Kinds that are not dequantised are named with the tensor."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(hidden_size=256, intermediate_size=256, head_dim=64), Kind.TQ1_0)
    with pytest.raises(ModelLoadError, match=r"tensor token_embd\.weight is of type TQ1_0; supported: F32"):
        load_model(file)


def test_factors_of_the_wrong_length_are_refused(tmp_path: Path) -> None:
    """rope_freqs.weight must have head_dim / 2 values."""
    file = tmp_path / "tiny.gguf"
    write_tiny_gguf(file, TinyModel(), rope_factors=np.ones(5))
    with pytest.raises(ModelLoadError, match="head_dim / 2 = 8 values, got 5"):
        load_model(file)
