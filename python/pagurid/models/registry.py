"""The model architectures that can be served, one line each.

Owns: what distinguishes them beyond the numbers of `ModelConfig`. All are Llama-like decoders, so all
are run by `pagurid.models.llama.LlamaForCausalLM`.
Must not know: tensors, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagurid.errors import ModelLoadError

__all__ = ["Architecture", "architecture_named", "architecture_of_gguf"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One kind of checkpoint.

    `gguf_interleaves_rope`: GGUF stores the rows of q and k so that rotary pairs are neighbours,
    and they must be put back (CASES D34).
    `biases`: which linear layers have one: as `attention_bias` and `mlp_bias` say, those of q, k
    and v always, or none.
    `sliding_window`: whether `sliding_window` in config.json counts: never, always (Mistral, 4096
    when it is absent), or only with `use_sliding_window`.
    """

    name: str
    gguf_name: str
    gguf_interleaves_rope: bool = False
    biases: Literal["config", "qkv", "none"] = "config"
    sliding_window: Literal["never", "always", "flag"] = "never"
    qk_norm: bool = False
    tied_by_default: bool = False


_ARCHITECTURES = (
    Architecture("LlamaForCausalLM", "llama", gguf_interleaves_rope=True),
    Architecture("MistralForCausalLM", "llama", True, biases="none", sliding_window="always"),
    Architecture("Qwen2ForCausalLM", "qwen2", biases="qkv", sliding_window="flag"),
    Architecture("Qwen3ForCausalLM", "qwen3", sliding_window="flag", qk_norm=True),
)


def architecture_named(name: str, *, file: str) -> Architecture:
    """By the name in config.json; ModelLoadError lists what there is."""
    for architecture in _ARCHITECTURES:
        if architecture.name == name:
            return architecture
    supported = ", ".join(architecture.name for architecture in _ARCHITECTURES)
    raise ModelLoadError(f"{file}: architecture {name!r} is not supported; supported: {supported}")


def architecture_of_gguf(name: str, *, file: str) -> Architecture:
    """By `general.architecture` of a GGUF file; ModelLoadError lists what there is."""
    for architecture in _ARCHITECTURES:
        if architecture.gguf_name == name:
            return architecture
    supported = ", ".join(sorted({architecture.gguf_name for architecture in _ARCHITECTURES}))
    raise ModelLoadError(f"{file}: GGUF architecture {name!r} is not supported; supported: {supported}")
