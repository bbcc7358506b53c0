"""Tiny random Llama models on disk, for every test that needs a model but not its wisdom.

Owns: a directory that looks like one from a model hub: config.json, generation_config.json,
safetensors (one file, or shards with an index), tokenizer.json, tokenizer_config.json with a chat
template. The same options give the same bytes; nothing is downloaded; made well under a second.
The weights are scaled so that logits spread over a few units: greedy text varies, ties are rare.
Must not know: pagurid.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3_ROPE_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_CORPUS = [
    "The hermit crab moves into a shell that another has vacated; the tide comes in and the tide goes out.",
    "A request moves into pages that another has freed, and one scheduler decides who computes, and where.",
    "What is the capital of France? The capital of France is Paris. What is two and two? Four, of course.",
    "def fold(items, start):\n    total = start\n    for item in items:\n        "
    "total += item\n    return total\n",
    "Once upon a time there was a small language model that lived by the sea and counted waves: 0 1 2 3 4.",
    "Déjà vu, naïve façade; 日本語と中文; emoji 🙂🦀; math: a² + b² = c² ≈ 3.14159",
]


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """What the tiny model looks like. `extra_config` goes into config.json as it is."""

    seed: int = 0
    architecture: str = "LlamaForCausalLM"
    hidden_size: int = 64
    intermediate_size: int = 96
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_position_embeddings: int = 512
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    tied: bool = True
    num_shards: int = 1
    dtype: torch.dtype = torch.float32
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_token_id: int | list[int] = 2
    extra_config: dict[str, Any] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """The tokenizer's tokens, padded as real models pad theirs."""
        return (tiny_tokenizer().get_vocab_size() + 63) // 64 * 64


@cache
def tiny_tokenizer() -> Tokenizer:
    """A byte-level BPE of about 450 tokens: digits one by one, three special tokens and two that are not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


def tiny_weights(options: TinyModel) -> dict[str, torch.Tensor]:
    """Checkpoint name → random tensor, as `transformers` names them."""
    generator = torch.Generator().manual_seed(options.seed)

    def random(*shape: int, scale: float) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * scale).to(options.dtype)

    def matrix(out_features: int, in_features: int) -> torch.Tensor:
        return random(out_features, in_features, scale=1.6 * in_features**-0.5)

    def norm(size: int) -> torch.Tensor:
        return (1 + 0.2 * torch.randn(size, generator=generator)).to(options.dtype)

    hidden, inner = options.hidden_size, options.intermediate_size
    query, key_value = options.num_heads * options.head_dim, options.num_kv_heads * options.head_dim
    tensors = {"model.embed_tokens.weight": random(options.vocab_size, hidden, scale=2 * hidden**-0.5)}
    for layer in range(options.num_layers):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = norm(hidden)
        tensors[prefix + "post_attention_layernorm.weight"] = norm(hidden)
        linears = {
            "self_attn.q_proj": (query, hidden, options.attention_bias),
            "self_attn.k_proj": (key_value, hidden, options.attention_bias),
            "self_attn.v_proj": (key_value, hidden, options.attention_bias),
            "self_attn.o_proj": (hidden, query, options.attention_bias and "Llama" in options.architecture),
            "mlp.gate_proj": (inner, hidden, options.mlp_bias),
            "mlp.up_proj": (inner, hidden, options.mlp_bias),
            "mlp.down_proj": (hidden, inner, options.mlp_bias),
        }
        for name, (out_features, in_features, bias) in linears.items():
            tensors[f"{prefix}{name}.weight"] = matrix(out_features, in_features)
            if bias:
                tensors[f"{prefix}{name}.bias"] = random(out_features, scale=0.1)
        if options.qk_norm:
            tensors[prefix + "self_attn.q_norm.weight"] = norm(options.head_dim)
            tensors[prefix + "self_attn.k_norm.weight"] = norm(options.head_dim)
    tensors["model.norm.weight"] = norm(hidden)
    if not options.tied:
        tensors["lm_head.weight"] = random(options.vocab_size, hidden, scale=2 * hidden**-0.5)
    return tensors


def tiny_config(options: TinyModel) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": [options.architecture],
        "model_type": options.architecture.removesuffix("ForCausalLM").lower(),
        "vocab_size": options.vocab_size,
        "hidden_size": options.hidden_size,
        "intermediate_size": options.intermediate_size,
        "num_hidden_layers": options.num_layers,
        "num_attention_heads": options.num_heads,
        "num_key_value_heads": options.num_kv_heads,
        "head_dim": options.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": options.max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": options.rope_theta,
        "rope_scaling": options.rope_scaling,
        "tie_word_embeddings": options.tied,
        "attention_bias": options.attention_bias,
        "mlp_bias": options.mlp_bias,
        "bos_token_id": 1,
        "eos_token_id": options.eos_token_id,
        "torch_dtype": str(options.dtype).removeprefix("torch."),
        **options.extra_config,
    }


def make_tiny_model(directory: Path, options: TinyModel | None = None, **changes: Any) -> Path:
    """Writes the model into `directory` (made if missing) and returns it.

    `make_tiny_model(tmp_path / "tiny", num_kv_heads=1, tied=False, num_shards=2)`.
    """
    options = options or TinyModel(**changes)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", tiny_config(options))
    write_json(
        directory / "generation_config.json", {"bos_token_id": 1, "eos_token_id": options.eos_token_id}
    )
    tiny_tokenizer().save(str(directory / "tokenizer.json"))
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": options.max_position_embeddings,
        },
    )
    _write_safetensors(directory, tiny_weights(options), options.num_shards)
    return directory


def write_json(path: Path, content: Any) -> None:
    """As hub files are: indented, UTF-8."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def _write_safetensors(directory: Path, tensors: dict[str, torch.Tensor], num_shards: int) -> None:
    if num_shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        filename = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = names[shard * len(names) // num_shards : (shard + 1) * len(names) // num_shards]
        save_file({name: tensors[name] for name in part}, directory / filename, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, filename))
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(directory / "model.safetensors.index.json", index)
