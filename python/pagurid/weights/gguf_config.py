"""The hyperparameters of a GGUF file as a `ModelConfig`.

Owns: which metadata keys they are. What the keys leave out the tensors tell: the vocabulary's size, whether
the head is tied, which layers have biases.
Must not know: tokens, what tensors hold (but the rope factors, which are a part of the config).
"""

from __future__ import annotations

from typing import Any

from pagurid.errors import ModelLoadError
from pagurid.models import ModelConfig, RopeScaling
from pagurid.models.registry import architecture_of_gguf
from pagurid.weights.gguf_file import ROPE_FACTORS, GgufFile

__all__ = ["config_of_gguf"]

_REQUIRED = object()


def config_of_gguf(gguf_file: GgufFile) -> ModelConfig:
    """ModelLoadError names the key that is missing or that asks for what this engine does not compute."""
    file = str(gguf_file.file)
    name = gguf_file.metadata.get("general.architecture")
    architecture = architecture_of_gguf(str(name), file=file)

    def value(key: str, default: Any = _REQUIRED) -> Any:
        found = gguf_file.metadata.get(f"{name}.{key}", default)
        if found is _REQUIRED:
            raise ModelLoadError(f"{file} has no {name}.{key}")
        if isinstance(found, list):
            if len(set(found)) != 1:
                raise ModelLoadError(f"{file}: {name}.{key} differs between layers, which is not supported")
            return found[0]
        return found

    if value("expert_count", 0):
        raise ModelLoadError(f"{file}: mixture-of-experts models are not supported")
    num_heads = int(value("attention.head_count"))
    hidden_size = int(value("embedding_length"))
    head_dim = int(value("attention.key_length", hidden_size // num_heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if int(value(key, head_dim)) != head_dim:
            raise ModelLoadError(f"{file}: {name}.{key} is {value(key)}; supported: {head_dim}, as the keys'")
    context = int(value("context_length"))
    return ModelConfig(
        architecture=architecture.name,
        vocab_size=gguf_file.shape("token_embd.weight")[0],
        hidden_size=hidden_size,
        intermediate_size=int(value("feed_forward_length")),
        num_layers=int(value("block_count")),
        num_heads=num_heads,
        num_kv_heads=int(value("attention.head_count_kv", num_heads)),
        head_dim=head_dim,
        max_position_embeddings=min(context, int(value("attention.sliding_window", 0)) or context),
        rms_norm_eps=float(value("attention.layer_norm_rms_epsilon")),
        rope_theta=float(value("rope.freq_base", 10000.0)),
        rope_scaling=_rope_scaling(gguf_file, str(name)),
        tie_word_embeddings="output.weight" not in gguf_file,
        qkv_bias="blk.0.attn_q.bias" in gguf_file,
        attention_out_bias="blk.0.attn_output.bias" in gguf_file,
        mlp_bias="blk.0.ffn_up.bias" in gguf_file,
        qk_norm=architecture.qk_norm,
    )


def _rope_scaling(gguf_file: GgufFile, name: str) -> RopeScaling | None:
    metadata = gguf_file.metadata
    kind = metadata.get(f"{name}.rope.scaling.type", "linear")
    old_factor = metadata.get(f"{name}.rope.scale_linear", 1.0)
    factor = float(metadata.get(f"{name}.rope.scaling.factor", old_factor))
    if kind not in ("none", "linear"):
        raise ModelLoadError(
            f"{gguf_file.file}: {name}.rope.scaling.type {kind!r} is not supported; supported: none, linear"
        )
    if ROPE_FACTORS in gguf_file:
        return RopeScaling(kind="factors", factors=tuple(gguf_file.read(ROPE_FACTORS).tolist()))
    if kind == "linear" and factor != 1.0:
        return RopeScaling(kind="linear", factor=factor)
    return None
