"""What a decoder model is, in numbers: `ModelConfig`.

Owns: the fields, and reading them from a Hugging Face `config.json`. A value that this engine would
compute wrongly (an unknown rope type, another activation, a quantised checkpoint) is refused here,
in one line. GGUF metadata is read by `pagurid.weights.gguf_config`, into the same fields.
Must not know: tensors, files, tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pagurid.errors import ModelLoadError
from pagurid.models.registry import Architecture, architecture_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ModelConfig", "RopeScaling", "token_ids_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for a longer context.

    `linear` divides all by `factor`; `llama3` divides the low ones, leaves the high ones and blends
    between; `factors` (GGUF's rope_freqs) divides each of the head_dim / 2 by its own.
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The hyperparameters of a Llama-like decoder, named as in `config.json`."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over each head of q and k before the rotation (Qwen3)."""
    eos_token_ids: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads"):
            if getattr(self, name) < 1:
                raise ModelLoadError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ModelLoadError(
                f"num_attention_heads ({self.num_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_kv_heads})"
            )
        if self.head_dim < 2 or self.head_dim % 2:
            raise ModelLoadError(f"head_dim must be even and at least 2, got {self.head_dim}")

    @property
    def num_parameters(self) -> int:
        """Numbers that the model holds; times four they are its bytes in float32."""
        query, key_value = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        hidden, inner = self.hidden_size, self.intermediate_size
        attention = (2 * query + 2 * key_value) * hidden
        biases = self.qkv_bias * (query + 2 * key_value) + self.attention_out_bias * hidden
        biases += self.mlp_bias * (2 * inner + hidden)
        norms = 2 * hidden + self.qk_norm * 2 * self.head_dim
        layer = attention + 3 * hidden * inner + biases + norms
        embeddings = self.vocab_size * hidden * (1 if self.tie_word_embeddings else 2)
        return embeddings + self.num_layers * layer + hidden

    @classmethod
    def from_hf(cls, content: Mapping[str, Any], *, file: str = "config.json") -> ModelConfig:
        """Reads the content of a `config.json`; `file` is for messages."""
        names = content.get("architectures") or [""]
        architecture = architecture_named(str(names[0]), file=file)
        _refuse_unsupported(content, architecture, file)
        try:
            num_heads = int(content["num_attention_heads"])
            hidden_size = int(content["hidden_size"])
            rope = _rope_parameters(content)
            has_biases = architecture.biases == "config"
            return cls(
                architecture=architecture.name,
                vocab_size=int(content["vocab_size"]),
                hidden_size=hidden_size,
                intermediate_size=int(content["intermediate_size"]),
                num_layers=int(content["num_hidden_layers"]),
                num_heads=num_heads,
                num_kv_heads=int(content.get("num_key_value_heads") or num_heads),
                head_dim=int(content.get("head_dim") or hidden_size // num_heads),
                max_position_embeddings=_context_length(content, architecture),
                rms_norm_eps=float(content.get("rms_norm_eps", 1e-6)),
                rope_theta=float(rope.get("rope_theta", 10000.0)),
                rope_scaling=_rope_scaling(rope, file),
                tie_word_embeddings=bool(content.get("tie_word_embeddings", architecture.tied_by_default)),
                qkv_bias=architecture.biases == "qkv" or (has_biases and bool(content.get("attention_bias"))),
                attention_out_bias=has_biases and bool(content.get("attention_bias")),
                mlp_bias=has_biases and bool(content.get("mlp_bias")),
                qk_norm=architecture.qk_norm,
                eos_token_ids=frozenset(token_ids_of(content.get("eos_token_id"))),
            )
        except KeyError as error:
            raise ModelLoadError(f"{file} has no {error.args[0]!r}") from None
        except (TypeError, ValueError) as error:
            raise ModelLoadError(f"{file} holds a value of the wrong type: {error}") from None


def token_ids_of(value: object) -> Iterable[int]:
    """The ids of a field that holds an int, a list of ints, or null."""
    if isinstance(value, bool) or value is None:
        return ()
    if isinstance(value, int):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    return ()


def _context_length(content: Mapping[str, Any], architecture: Architecture) -> int:
    """The longest context this engine computes as the model was trained: full attention only.

    Up to its window, a sliding-window model attends to everything.
    """
    length = int(content["max_position_embeddings"])
    if architecture.sliding_window == "flag":
        windowed = bool(content.get("use_sliding_window"))
    else:
        windowed = architecture.sliding_window == "always"
    window = content.get("sliding_window", 4096) if windowed else None
    return length if window is None else min(length, int(window))


def _rope_parameters(content: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping from both spellings: `rope_theta` + `rope_scaling`, and `rope_parameters` of late."""
    parameters = dict(content.get("rope_scaling") or {}) | dict(content.get("rope_parameters") or {})
    if "rope_theta" in content:
        parameters.setdefault("rope_theta", content["rope_theta"])
    return parameters


def _rope_scaling(parameters: Mapping[str, Any], file: str) -> RopeScaling | None:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=float(parameters["factor"]))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=float(parameters["factor"]),
            low_freq_factor=float(parameters["low_freq_factor"]),
            high_freq_factor=float(parameters["high_freq_factor"]),
            original_max_position_embeddings=int(parameters["original_max_position_embeddings"]),
        )
    raise ModelLoadError(f"{file}: rope type {kind!r} is not supported; supported: default, linear, llama3")


def _refuse_unsupported(content: Mapping[str, Any], architecture: Architecture, file: str) -> None:
    if quantization := content.get("quantization_config"):
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else "unknown"
        raise ModelLoadError(
            f"{file}: quantized checkpoints ({method}) are not supported; "
            "use the unquantized safetensors or a GGUF file of the model"
        )
    activation = content.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ModelLoadError(f"{file}: hidden_act {activation!r} is not supported; supported: silu")
    partial = _rope_parameters(content).get(
        "partial_rotary_factor", content.get("partial_rotary_factor", 1.0)
    )
    if partial != 1.0:
        raise ModelLoadError(f"{file}: partial_rotary_factor {partial} is not supported; supported: 1.0")
    layer_types = set(content.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    if layer_types:
        raise ModelLoadError(
            f"{file}: layer types {sorted(layer_types)} are not supported by {architecture.name}"
        )
