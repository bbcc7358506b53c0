"""How a text is cut before byte-level BPE merges, by the name GGUF gives it (`tokenizer.ggml.pre`).

Owns: the table of names. GGUF stores vocabulary and merges but of this step only a name, so what the
name means must be known here; an unknown one would give wrong ids silently and is refused.
Must not know: vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from pagurid.errors import ModelLoadError

__all__ = ["PreTokenizer", "pre_tokenizer_named"]

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`patterns` cut one after the other; `digits` cuts numbers into single digits before them."""

    patterns: tuple[str, ...]
    digits: bool = False
    ignore_merges: bool = False
    """A piece that is a token as a whole is that token, whatever the merges say."""
    add_bos: bool = False
    """Whether a BOS token comes first where the metadata say nothing."""
    nfc: bool = False

    def steps(self) -> pre_tokenizers.PreTokenizer:
        """For the tokenizers library."""
        cuts: list[pre_tokenizers.PreTokenizer] = []
        if self.digits:
            cuts.append(pre_tokenizers.Digits(individual_digits=True))
        cuts += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(cuts)

    def normalizer(self) -> normalizers.Normalizer | None:
        """For the tokenizers library."""
        return normalizers.NFC() if self.nfc else None


_SMOLLM = PreTokenizer((_GPT2,), digits=True)
_LLAMA_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_BY_NAME = {
    "default": PreTokenizer(_DEFAULT),
    "gpt-2": PreTokenizer((_GPT2,)),
    "olmo": PreTokenizer((_GPT2,)),
    "mpt": PreTokenizer((_GPT2,)),
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "command-r": _SMOLLM,
    "codeshell": _SMOLLM,
    "exaone": _SMOLLM,
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "falcon3": _LLAMA_BPE,
    "dbrx": PreTokenizer((_LLAMA3,)),
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    "deepseek-r1-qwen": PreTokenizer((_QWEN2,), add_bos=True),
    "stablelm2": PreTokenizer((_QWEN2,)),
    "megrez": PreTokenizer((_QWEN2,)),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
}


def pre_tokenizer_named(name: str, *, file: str) -> PreTokenizer:
    """ModelLoadError lists what there is."""
    if name not in _BY_NAME:
        raise ModelLoadError(
            f"{file}: tokenizer.ggml.pre {name!r} is not supported; supported: {', '.join(sorted(_BY_NAME))}"
        )
    return _BY_NAME[name]
