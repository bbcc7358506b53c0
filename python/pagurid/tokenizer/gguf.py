"""A tokenizer from GGUF metadata: the same ids as from the `tokenizer.json` it was made of.

Owns: rebuilding a `tokenizers.Tokenizer` of the two kinds that Llama-like models have: `gpt2` (byte-level
BPE with merges) and `llama` (SentencePiece BPE: scores instead of merges, spaces as ▁, byte fallback).
Must not know: GGUF files; metadata come as a mapping.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from pagurid.errors import ModelLoadError
from pagurid.tokenizer.pre_tokenizers import pre_tokenizer_named
from pagurid.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["tokenizer_from_gguf"]

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
"""Token types of GGUF. The first three are added tokens, matched in the text as they are; two are special."""

_SPECIAL_KEYS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_END_KEYS = ("eos", "eot", "eom")
_TURN_ENDS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"}
)
"""GGUF does not hold the generation config, where most models name these as further ends (CASES D33)."""


def tokenizer_from_gguf(metadata: Mapping[str, Any], *, vocab_size: int, file: str) -> Tokenizer:
    """ModelLoadError names the key that is missing or not supported."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens: Sequence[str] = metadata.get("tokenizer.ggml.tokens", ())
    if not tokens:
        raise ModelLoadError(f"{file} has no tokenizer.ggml.tokens: it holds no tokenizer")
    if kind == "gpt2":
        backend, add_bos = _byte_level_bpe(metadata, tokens, file)
    elif kind == "llama":
        backend, add_bos = _sentencepiece_bpe(metadata, tokens, file), True
    else:
        raise ModelLoadError(
            f"{file}: tokenizer.ggml.model {kind!r} is not supported; supported: gpt2, llama"
        )
    _add_tokens(backend, metadata, tokens)
    special_tokens = {
        name: tokens[token_id]
        for name, key in _SPECIAL_KEYS.items()
        if (token_id := _special_id(metadata, key, tokens)) is not None
    }
    _add_template(backend, metadata, special_tokens, add_bos=add_bos)
    ends = [_special_id(metadata, key, tokens) for key in _END_KEYS]
    ends += [token_id for token_id in _of_types(metadata, _CONTROL) if tokens[token_id] in _TURN_ENDS]
    return Tokenizer(
        backend,
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        eos_token_ids=[token_id for token_id in ends if token_id is not None],
        chat_templates=_chat_templates(metadata),
        file=file,
    )


def _byte_level_bpe(
    metadata: Mapping[str, Any], tokens: Sequence[str], file: str
) -> tuple[tokenizers.Tokenizer, bool]:
    pre = pre_tokenizer_named(metadata.get("tokenizer.ggml.pre", "default"), file=file)
    merges: list[tuple[str, str]] = []
    for line in metadata.get("tokenizer.ggml.merges", ()):
        first, _, second = line.partition(" ")
        merges.append((first, second))
    padding = set(_of_types(metadata, _UNUSED))  # fills the vocabulary up to the width of the logits
    vocabulary = {token: token_id for token_id, token in enumerate(tokens) if token_id not in padding}
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=pre.ignore_merges)
    except Exception as error:  # the library raises a bare Exception
        raise ModelLoadError(f"{file}: tokenizer.ggml.merges do not suit the tokens: {error}") from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre.steps()
    if (normalizer := pre.normalizer()) is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    return backend, pre.add_bos


def _sentencepiece_bpe(metadata: Mapping[str, Any], tokens: Sequence[str], file: str) -> tokenizers.Tokenizer:
    scores: Sequence[float] = metadata.get("tokenizer.ggml.scores", ())
    if len(scores) != len(tokens):
        raise ModelLoadError(
            f"{file}: tokenizer.ggml.scores must hold {len(tokens)} values, one a token, got {len(scores)}"
        )
    unknown = _special_id(metadata, "unknown", tokens)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocabulary,
            _merges_by_score(vocabulary, scores, set(_of_types(metadata, _UNKNOWN, _CONTROL, _USER_DEFINED))),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    spaces = normalizers.Replace(" ", "▁")
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        backend.normalizer = spaces
    backend.decoder = decoders.Sequence(steps)
    return backend


def _merges_by_score(
    vocabulary: Mapping[str, int], scores: Sequence[float], added: set[int]
) -> list[tuple[str, str]]:
    """Every way to make a piece of two; the best-scored piece is merged first, as SentencePiece does."""
    ranked: list[tuple[float, int, int, str, str]] = []
    for piece, token_id in vocabulary.items():
        if token_id in added:
            continue
        for cut in range(1, len(piece)):
            first, second = vocabulary.get(piece[:cut]), vocabulary.get(piece[cut:])
            if first is not None and second is not None:
                ranked.append((-scores[token_id], first, second, piece[:cut], piece[cut:]))
    ranked.sort()
    return [(first, second) for *_, first, second in ranked]


def _add_tokens(backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str]) -> None:
    special = [tokens[token_id] for token_id in _of_types(metadata, _UNKNOWN, _CONTROL)]
    plain = [tokens[token_id] for token_id in _of_types(metadata, _USER_DEFINED)]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    backend.add_tokens([AddedToken(token, normalized=False) for token in plain])


def _add_template(
    backend: tokenizers.Tokenizer,
    metadata: Mapping[str, Any],
    special_tokens: Mapping[str, str],
    *,
    add_bos: bool,
) -> None:
    """What `encode(add_special_tokens=True)` puts around a text."""
    first = metadata.get("tokenizer.ggml.add_bos_token", add_bos) and special_tokens.get("bos_token")
    last = metadata.get("tokenizer.ggml.add_eos_token", False) and special_tokens.get("eos_token")
    around = [token for token in (first, last) if token]
    if not around:
        return
    backend.post_processor = processors.TemplateProcessing(
        single=[*([first] if first else []), "$A", *([last] if last else [])],
        special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys(around)],
    )


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    prefix = "tokenizer.chat_template"
    templates = {
        key.removeprefix(prefix + "."): template
        for key, template in metadata.items()
        if key.startswith(prefix + ".")
    }
    return templates | ({"default": metadata[prefix]} if prefix in metadata else {})


def _of_types(metadata: Mapping[str, Any], *types: int) -> list[int]:
    return [
        token_id
        for token_id, token_type in enumerate(metadata.get("tokenizer.ggml.token_type", ()))
        if token_type in types
    ]


def _special_id(metadata: Mapping[str, Any], key: str, tokens: Sequence[str]) -> int | None:
    token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
    return token_id if isinstance(token_id, int) and 0 <= token_id < len(tokens) else None
