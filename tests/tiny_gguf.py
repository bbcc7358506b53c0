"""GGUF twins of the tiny models, written by the `gguf` library.

Owns: names, metadata keys and the row order of q and k as llama.cpp's converter has them.
`twin_weights` are the float32 values such a file stands for, to build the safetensors twin from.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind

from tiny_models import CHAT_TEMPLATE, TinyModel, tiny_tokenizer, tiny_weights

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(checkpoint_name: str) -> str:
    stem, _, suffix = checkpoint_name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_NAMES[part]}.{suffix}"
    return f"{_NAMES[stem]}.{suffix}"


def interleave_heads(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Row order of q and k in llama-family GGUF: rotary partners i and i + d/2 become neighbours."""
    halves = tensor.reshape(num_heads, 2, tensor.shape[0] // num_heads // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def quantized(values: np.ndarray[Any, Any], kind: Kind) -> np.ndarray[Any, Any]:
    """As the file stores it. The library cannot quantise to K kinds: those get random, valid blocks."""
    if kind in (Kind.Q4_K, Kind.Q6_K):
        rng = np.random.default_rng(values.size)
        blocks, scale = values.size // 256, np.float16(values.std() / 400)
        if kind == Kind.Q4_K:
            head = np.tile(np.array([scale, scale], dtype=np.float16).view(np.uint8), (blocks, 1))
            rest = rng.integers(0, 256, (blocks, 140), dtype=np.uint8)
            data = np.concatenate([head, rest], axis=1)
        else:
            tail = np.tile(np.array([scale / 16], dtype=np.float16).view(np.uint8), (blocks, 1))
            rest = rng.integers(0, 256, (blocks, 208), dtype=np.uint8)
            data = np.concatenate([rest, tail], axis=1)
        return data.reshape(values.shape[0], -1)
    return gguf.quantize(values, kind)


def write_tiny_gguf(
    file: Path,
    options: TinyModel,
    kind: Kind = Kind.F32,
    *,
    metadata: dict[str, Any] | None = None,
    rope_factors: np.ndarray[Any, Any] | None = None,
    leave_out: tuple[str, ...] = (),
) -> dict[str, torch.Tensor]:
    """Writes the file; returns the weights it stands for under checkpoint names (q and k not interleaved).

    `metadata` replaces or adds string, int or float keys; `leave_out` names tensors that are not written.
    """
    name = options.architecture.removesuffix("ForCausalLM").lower().replace("mistral", "llama")
    writer = gguf.GGUFWriter(file, name)
    extra = metadata or {}
    _write_hyperparameters(writer, options, skip=extra)
    write_tokenizer(writer, options)
    for key, value in extra.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    heads = {"q_proj": options.num_heads, "k_proj": options.num_kv_heads} if name == "llama" else {}
    twin: dict[str, torch.Tensor] = {}
    for checkpoint_name, tensor in tiny_weights(options).items():
        num_heads = heads.get(checkpoint_name.split(".")[-2])
        in_file_order = tensor if num_heads is None else interleave_heads(tensor, num_heads)
        values = np.ascontiguousarray(in_file_order.float().numpy())
        tensor_kind = kind if values.ndim == 2 else Kind.F32
        data = quantized(values, tensor_kind)
        back = torch.from_numpy(gguf.dequantize(data, tensor_kind).reshape(values.shape).copy())
        if num_heads is not None:
            pairs = back.reshape(num_heads, -1, 2, *back.shape[1:])
            back = pairs.transpose(1, 2).reshape(back.shape)
        twin[checkpoint_name] = back.contiguous()
        if gguf_name(checkpoint_name) not in leave_out:
            writer.add_tensor(gguf_name(checkpoint_name), data, raw_dtype=tensor_kind)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return twin


def _write_hyperparameters(writer: gguf.GGUFWriter, options: TinyModel, skip: dict[str, Any]) -> None:
    writer.add_block_count(options.num_layers)
    writer.add_context_length(options.max_position_embeddings)
    writer.add_embedding_length(options.hidden_size)
    writer.add_feed_forward_length(options.intermediate_size)
    writer.add_head_count(options.num_heads)
    writer.add_head_count_kv(options.num_kv_heads)
    writer.add_key_length(options.head_dim)
    writer.add_value_length(options.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    if f"{writer.arch}.rope.freq_base" not in skip:
        writer.add_rope_freq_base(options.rope_theta)
    if f"{writer.arch}.rope.dimension_count" not in skip:
        writer.add_rope_dimension_count(options.head_dim)


def write_tokenizer(writer: gguf.GGUFWriter, options: TinyModel) -> None:
    """The tiny tokenizer as `gpt2` kind, padded to the logits' width with unused tokens."""
    content = json.loads(tiny_tokenizer().to_str())
    tokens = [f"[PAD{token_id}]" for token_id in range(options.vocab_size)]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for token, token_id in content["model"]["vocab"].items():
        tokens[token_id], types[token_id] = token, gguf.TokenType.NORMAL
    for added in content["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
