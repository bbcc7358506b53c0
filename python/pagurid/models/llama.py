"""The Llama decoder over a paged KV cache; also Mistral, Qwen2 and Qwen3, which differ by a bias or a norm.

Owns: the forward pass, the parameters (q, k, v in one weight; gate and up in one weight) and where each
checkpoint tensor goes in them (`parameter_slots`).
Invariants: rows never mix but in attention, so a row's logits are the same bits in any batch; the forward
pass is made of `pagurid.ops` alone, so that it can be recorded; parameters are uninitialised until
`pagurid.weights` has filled every slot.
Must not know: files, requests, the scheduler. What a KV block looks like inside is the ops' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pagurid import ops
from pagurid.models.rope import cos_sin_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pagurid.models.config import ModelConfig
    from pagurid.models.kv_cache import KvCache
    from pagurid.models.step_inputs import StepInputs
    from pagurid.ops import QuantizedWeight

__all__ = ["Linear", "LlamaForCausalLM", "LlamaLayer"]


class Linear:
    """y = x Wᵀ (+ bias), W `[out_features, in_features]`, of 16 bits perhaps; a quantised W has its bias."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor | QuantizedWeight, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def empty(cls, in_features: int, out_features: int, *, bias: bool = False) -> Linear:
        """Uninitialised."""
        return cls(torch.empty(out_features, in_features), torch.empty(out_features) if bias else None)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in_features] → [T, out_features]."""
        if not isinstance(self.weight, Tensor):
            return ops.quantized_linear(x, self.weight)
        y: Tensor = ops.linear(x, self.weight)
        if self.bias is not None:
            ops.add_bias(y, self.bias)
        return y


@dataclass(slots=True)
class LlamaLayer:
    """The parameters of one decoder layer."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    attention_out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class LlamaForCausalLM:
    """The model of one `ModelConfig` on the CPU: float32, linear layers perhaps of 16 bits or quantised."""

    def __init__(self, config: ModelConfig, *, max_model_len: int | None = None) -> None:
        self.config = config
        self.max_model_len = max_model_len or config.max_position_embeddings
        self.scale = config.head_dim**-0.5
        self.cos_sin = cos_sin_table(config, self.max_model_len)  # [max_model_len, head_dim]
        self.embedding = Linear.empty(config.hidden_size, config.vocab_size)  # row t is token t's
        self.layers = [self._make_layer() for _ in range(config.num_layers)]
        self.final_norm = torch.empty(config.hidden_size)
        self.lm_head = (
            self.embedding
            if config.tie_word_embeddings
            else Linear.empty(config.hidden_size, config.vocab_size)
        )

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, kv_cache: KvCache) -> Tensor:
        """Computes T tokens of S sequences, writes their K and V; logits [R, vocab_size] of `logits_rows`."""
        config = self.config
        eps = config.rms_norm_eps
        residual = ops.embedding(inputs.token_ids, self.embedding.weight)  # [T, hidden]
        x = ops.rms_norm(residual, self.layers[0].input_norm, eps)
        for index, layer in enumerate(self.layers):
            k_cache, v_cache = kv_cache.layer(index)
            qkv = layer.qkv(x)  # [T, (Hq + 2 Hkv) D]
            if layer.q_norm is not None and layer.k_norm is not None:
                ops.norm_heads(qkv, layer.q_norm, layer.k_norm, config.num_heads, config.num_kv_heads, eps)
            q = ops.rope_kv_write(
                qkv,
                self.cos_sin,
                inputs.positions,
                inputs.slot_mapping,
                k_cache,
                v_cache,
                config.num_heads,
                config.num_kv_heads,
            )  # [T, Hq, D]
            attention = ops.paged_attention(
                q,
                k_cache,
                v_cache,
                inputs.query_start,
                inputs.context_lens,
                inputs.block_tables,
                self.scale,
            )  # [T, Hq D]
            x = ops.add_rms_norm(layer.attention_out(attention), residual, layer.mlp_norm, eps)
            x = layer.down(ops.silu_mul(layer.gate_up(x)))
            if index + 1 < len(self.layers):
                x = ops.add_rms_norm(x, residual, self.layers[index + 1].input_norm, eps)
        # Only rows that are sampled from go on: the vocabulary is the widest matrix of all.
        rows = inputs.logits_rows
        x = ops.add_rms_norm(ops.take_rows(x, rows), ops.take_rows(residual, rows), self.final_norm, eps)
        return self.lm_head(x)

    __call__ = forward

    def linear_parts(self) -> Iterator[tuple[Linear, dict[str, int]]]:
        """Each linear layer with the checkpoint weights that lie in it one below the other: name → rows."""
        config = self.config
        q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        inner = config.intermediate_size
        yield self.embedding, {"model.embed_tokens.weight": config.vocab_size}
        if not config.tie_word_embeddings:
            yield self.lm_head, {"lm_head.weight": config.vocab_size}
        for index, layer in enumerate(self.layers):
            attention, mlp = f"model.layers.{index}.self_attn.", f"model.layers.{index}.mlp."
            yield (
                layer.qkv,
                {
                    attention + "q_proj.weight": q_rows,
                    attention + "k_proj.weight": kv_rows,
                    attention + "v_proj.weight": kv_rows,
                },
            )
            yield layer.attention_out, {attention + "o_proj.weight": config.hidden_size}
            yield layer.gate_up, {mlp + "gate_proj.weight": inner, mlp + "up_proj.weight": inner}
            yield layer.down, {mlp + "down_proj.weight": config.hidden_size}

    @property
    def weights_bytes(self) -> int:
        """Memory of all parameters, mapped files included."""
        norms = [self.final_norm]
        for layer in self.layers:
            norms += [layer.input_norm, layer.mlp_norm]
            norms += [norm for norm in (layer.q_norm, layer.k_norm) if norm is not None]
        linears = [linear for linear, _ in self.linear_parts()]
        biases = [linear.bias for linear in linears if linear.bias is not None]
        return sum(part.nbytes for part in [*norms, *biases, *(linear.weight for linear in linears)])

    def parameter_slots(self) -> dict[str, Tensor]:
        """Checkpoint name → the part of a parameter it fills, in its checkpoint's shape. They cover all.

        Only before `pagurid.weights` puts W of the linear layers in its place.
        """
        slots = {"model.norm.weight": self.final_norm}
        for index, layer in enumerate(self.layers):
            prefix = f"model.layers.{index}."
            slots[prefix + "input_layernorm.weight"] = layer.input_norm
            slots[prefix + "post_attention_layernorm.weight"] = layer.mlp_norm
            if layer.q_norm is not None and layer.k_norm is not None:
                slots[prefix + "self_attn.q_norm.weight"] = layer.q_norm
                slots[prefix + "self_attn.k_norm.weight"] = layer.k_norm
        for linear, parts in self.linear_parts():
            start = 0
            for name, rows in parts.items():
                slots[name] = linear.weight[start : start + rows]  # type: ignore[index]
                if linear.bias is not None:
                    slots[name.removesuffix("weight") + "bias"] = linear.bias[start : start + rows]
                start += rows
        return slots

    def _make_layer(self) -> LlamaLayer:
        config = self.config
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        qkv_rows = (config.num_heads + 2 * config.num_kv_heads) * head_dim
        return LlamaLayer(
            input_norm=torch.empty(hidden),
            qkv=Linear.empty(hidden, qkv_rows, bias=config.qkv_bias),
            q_norm=torch.empty(head_dim) if config.qk_norm else None,
            k_norm=torch.empty(head_dim) if config.qk_norm else None,
            attention_out=Linear.empty(config.num_heads * head_dim, hidden, bias=config.attention_out_bias),
            mlp_norm=torch.empty(hidden),
            gate_up=Linear.empty(hidden, 2 * inner, bias=config.mlp_bias),
            down=Linear.empty(inner, hidden, bias=config.mlp_bias),
        )
