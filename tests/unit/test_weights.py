"""Loading safetensors directories: what must fail, and that it fails in one line that names the culprit."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from paged_runner import PagedRunner
from pagurid.errors import ModelLoadError
from pagurid.models import LlamaForCausalLM, ModelConfig
from pagurid.weights import LoadedModel, load, load_model
from tiny_gguf import write_tiny_gguf
from tiny_models import TinyModel, make_tiny_model, tiny_config, tiny_weights, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROMPT = [298, 275, 336, 33, 17, 90]


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    return PagedRunner(loaded.model).step({"a": PROMPT}, all_rows=True)


def edit_json(file: Path, **changes: Any) -> None:
    """`None` removes a key."""
    content = json.loads(file.read_text()) | changes
    write_json(file, {key: value for key, value in content.items() if value is not None})


def edit_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny", tied=False)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "sharded", tied=False, num_shards=2)


def test_slots_cover_every_parameter() -> None:
    """Each element of each parameter belongs to exactly one checkpoint tensor, fused ones too."""
    options = TinyModel(tied=False, attention_bias=True, mlp_bias=True)
    model = LlamaForCausalLM(ModelConfig.from_hf(tiny_config(options)))
    parameters = [model.embedding.weight, model.lm_head.weight, model.final_norm]
    for layer in model.layers:
        parameters += [layer.input_norm, layer.mlp_norm]
        for linear in (layer.qkv, layer.attention_out, layer.gate_up, layer.down):
            assert linear.bias is not None
            parameters += [linear.weight, linear.bias]
    for parameter in parameters:
        parameter.zero_()
    slots = model.parameter_slots()
    for slot in slots.values():
        slot.add_(1)
    assert all(bool((parameter == 1).all()) for parameter in parameters)
    assert {name: tuple(slot.shape) for name, slot in slots.items()} == {
        name: tuple(tensor.shape) for name, tensor in tiny_weights(options).items()
    }


def test_sharded_is_the_same_model(tiny: Path, sharded: Path) -> None:
    """One file or two with an index: the same logits."""
    assert torch.equal(logits_of(load_model(tiny)), logits_of(load_model(sharded)))


def test_missing_shard(sharded: Path) -> None:
    """D31: the index names a shard that is absent."""
    (sharded / "model-00002-of-00002.safetensors").unlink()
    message = refusal(sharded)
    assert "model-00002-of-00002.safetensors is missing" in message
    assert "more tensors" in message


def test_index_names_a_tensor_its_shard_lacks(sharded: Path) -> None:
    """D31: the tensor and the shard are named."""
    shard = sharded / "model-00001-of-00002.safetensors"
    tensors = load_file(shard)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, shard)
    message = refusal(sharded)
    assert "model-00001-of-00002.safetensors has no tensor model.layers.0.mlp.up_proj.weight" in message


@pytest.mark.parametrize(
    "name", ["model-00003-of-00003.safetensors", "consolidated.safetensors", "model.safetensors"]
)
def test_stale_extra_file_is_ignored(sharded: Path, name: str) -> None:
    """D31: only files that the index names count."""
    expected = logits_of(load_model(sharded))
    save_file({"model.norm.weight": torch.zeros(3), "junk": torch.zeros(1)}, sharded / name)
    assert torch.equal(logits_of(load_model(sharded)), expected)


def test_index_cannot_lead_out_of_the_directory(sharded: Path) -> None:
    """An index names plain file names."""
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    write_json(index, content)
    assert "not a plain file name" in refusal(sharded)


def test_tensor_twice(sharded: Path) -> None:
    """A tensor in two shards: which one is meant cannot be known."""
    first, second = (sharded / f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    embedding = load_file(first)["model.embed_tokens.weight"]
    save_file(load_file(second) | {"model.embed_tokens.weight": embedding}, second)
    message = refusal(sharded)
    assert "model.embed_tokens.weight occurs twice" in message
    assert first.name in message
    assert second.name in message


def test_missing_tensor(tiny: Path) -> None:
    """D31: no parameter is left unset."""
    edit_weights(tiny, lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.weight"))
    assert "tiny: no tensor for model.layers.1.self_attn.k_proj.weight" in refusal(tiny)


def test_missing_layer_tells_how_many(tiny: Path) -> None:
    """Fewer layers in the file than in the config."""
    edit_json(tiny / "config.json", num_hidden_layers=3)
    assert "no tensor for model.layers.2.input_layernorm.weight and 8 more" in refusal(tiny)


def test_unused_tensor(tiny: Path) -> None:
    """Every tensor of the checkpoint is used: more layers in the file than in the config is an error."""
    edit_json(tiny / "config.json", num_hidden_layers=1)
    assert "tensor model.layers.1." in (message := refusal(tiny))
    assert "is not part of a LlamaForCausalLM of 1 layers" in message


def test_unexpected_bias_is_not_dropped(tiny: Path) -> None:
    """A bias in the file that the config does not ask for would change the answers."""
    bias = torch.zeros(64)
    edit_weights(tiny, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": bias}))
    assert "tensor model.layers.0.self_attn.q_proj.bias is not part of" in refusal(tiny)


def test_rotary_buffers_of_old_checkpoints_are_tolerated(tiny: Path) -> None:
    """inv_freq is computed from the config."""
    expected = logits_of(load_model(tiny))
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_weights(tiny, lambda tensors: tensors.update({name: torch.zeros(8)}))
    assert torch.equal(logits_of(load_model(tiny)), expected)


def test_wrong_shape(tiny: Path) -> None:
    """Both shapes are in the message."""
    edit_weights(tiny, lambda tensors: tensors.update({"model.norm.weight": torch.ones(65)}))
    message = refusal(tiny)
    assert "tensor model.norm.weight has shape [65], the config asks for [64]" in message
    assert "model.safetensors" in message


def test_tied_without_head(tmp_path: Path) -> None:
    """D32, first case: the logits use the embeddings."""
    loaded = load_model(make_tiny_model(tmp_path / "tiny", tied=True))
    assert loaded.model.lm_head is loaded.model.embedding


@pytest.mark.parametrize("same", [True, False])
def test_tied_with_stray_head(tmp_path: Path, same: bool, caplog: pytest.LogCaptureFixture) -> None:
    """D32, second case: ignored; a warning if it is another matrix."""
    directory = make_tiny_model(tmp_path / "tiny", tied=True)
    expected = logits_of(load_model(directory))
    factor = 1.0 if same else 2.0
    head = factor * load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
    edit_weights(directory, lambda tensors: tensors.update({"lm_head.weight": head}))
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits_of(load_model(directory)), expected)
    assert ("lm_head.weight differs from the embeddings" in caplog.text) is not same


def test_untied_without_head(tiny: Path) -> None:
    """D32, third case: an error that names lm_head."""
    edit_weights(tiny, lambda tensors: tensors.pop("lm_head.weight"))
    message = refusal(tiny)
    assert "no tensor for lm_head.weight" in message
    assert "tie_word_embeddings" in message


def test_tie_key_missing(tiny: Path) -> None:
    """D32, fourth case: Llama's default is an own head, so it is used, and missed when it is not there."""
    expected = logits_of(load_model(tiny))
    edit_json(tiny / "config.json", tie_word_embeddings=None)
    assert torch.equal(logits_of(load_model(tiny)), expected)
    edit_weights(tiny, lambda tensors: tensors.pop("lm_head.weight"))
    assert "no tensor for lm_head.weight" in refusal(tiny)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"generation_config.json": [2, 8, 9]}, {2, 8, 9}),
        ({"generation_config.json": 8}, {2, 8}),
        ({"config.json": [8, 9]}, {2, 8, 9}),
        ({"config.json": 8, "generation_config.json": [9, 10]}, {2, 8, 9, 10}),
        ({}, {2}),
    ],
)
def test_end_ids_are_the_union(tiny: Path, places: dict[str, Any], expected: set[int]) -> None:
    """D33: from the generation config (int or list), the config, and the tokenizer (<|im_end|> = 2)."""
    for file in ("config.json", "generation_config.json"):
        edit_json(tiny / file, eos_token_id=places.get(file))
    loaded = load_model(tiny)
    assert loaded.config.eos_token_ids == expected
    assert loaded.tokenizer.eos_token_ids == expected


def test_no_generation_config(tiny: Path) -> None:
    """D33: it is optional; the other places still count."""
    (tiny / "generation_config.json").unlink()
    assert load_model(tiny).config.eos_token_ids == {2}


def test_unsupported_dtype(tiny: Path) -> None:
    """The tensor and its type are named."""
    edit_weights(
        tiny, lambda tensors: tensors.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)})
    )
    assert "tensor model.norm.weight is of type I8; supported: F32, F16, BF16" in refusal(tiny)


@pytest.mark.parametrize("length", [0, 7, 500, 10_000])
def test_truncated_safetensors(tiny: Path, length: int) -> None:
    """Cut off in the header or in the data."""
    file = tiny / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    assert "model.safetensors is broken or incomplete" in refusal(tiny)


def test_missing_files(tiny: Path, tmp_path: Path) -> None:
    """Each file that must be there is named when it is not."""
    assert "nowhere does not exist" in refusal(tmp_path / "nowhere")
    (tmp_path / "model.bin").write_bytes(b"")
    assert "neither a directory with safetensors nor a .gguf file" in refusal(tmp_path / "model.bin")
    for name, expected in {
        "config.json": "cannot read",
        "tokenizer.json": "tokenizer.json is missing",
        "model.safetensors": "neither model.safetensors nor",
    }.items():
        copy = shutil.copytree(tiny, tmp_path / f"without-{name}")
        (copy / name).unlink()
        assert expected in refusal(copy)


def test_directory_with_one_gguf_file(tmp_path: Path) -> None:
    """It is the model; of several, one must be named."""
    write_tiny_gguf(tmp_path / "a.gguf", TinyModel())
    assert load_model(tmp_path).name == "a"
    write_tiny_gguf(tmp_path / "b.gguf", TinyModel())
    assert "several GGUF files, name one of them: a.gguf, b.gguf" in refusal(tmp_path)


def test_too_little_memory(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both numbers, before anything is allocated."""
    monkeypatch.setattr(load, "available_memory_bytes", lambda: 2**18)
    message = refusal(tiny)
    assert "tiny needs 0.0 GiB of memory, 0.0 GiB are free" in message
    monkeypatch.setattr(load, "available_memory_bytes", lambda: None)
    load_model(tiny)


def test_pickles_are_not_loaded(tiny: Path) -> None:
    """A directory with only pytorch_model.bin: why it is refused, and what to do."""
    (tiny / "model.safetensors").rename(tiny / "pytorch_model.bin")
    assert "convert them to safetensors" in refusal(tiny)


def test_broken_json(tiny: Path) -> None:
    """Not JSON, or not an object."""
    (tiny / "config.json").write_text("{")
    assert "config.json is not JSON" in refusal(tiny)
    (tiny / "config.json").write_text("[]")
    assert "expected a JSON object, got list" in refusal(tiny)
