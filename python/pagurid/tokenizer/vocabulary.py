"""What each token id adds to a text, in bytes: the data of the core's `Vocabulary`.

Owns: reading a tokenizer's decoder as a function of one token. Bytes, not text, because a character may be
split over tokens; the core joins them. Added tokens stand for themselves, literally (CASES D05).
Must not know: how text becomes tokens, streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagurid.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["VocabularyData", "byte_level_alphabet", "vocabulary_data"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class VocabularyData:
    """`token_bytes[i]` is what token i adds; b"" where no token has the id."""

    token_bytes: list[bytes]
    special_token_ids: list[int]
    strip_leading_space: bool


@dataclass(frozen=True, slots=True)
class _Decoder:
    """A decoder chain, understood: steps on the token's text, then the way to bytes."""

    replacements: tuple[tuple[str, str], ...] = ()
    byte_level: bool = False
    byte_fallback: bool = False
    strip_leading_space: bool = False


def byte_level_alphabet() -> dict[str, int]:
    """The 256 characters by which byte-level BPE spells bytes: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def vocabulary_data(
    tokenizer_json: Mapping[str, Any], vocabulary: Mapping[str, int], vocab_size: int
) -> VocabularyData:
    """From the content of a tokenizer.json and its token → id table; `vocab_size` entries, as logits have."""
    decoder = _understand(_flatten(tokenizer_json.get("decoder")))
    to_bytes = _token_to_bytes(decoder)
    token_bytes = [b""] * vocab_size
    for token, token_id in vocabulary.items():
        if token_id < vocab_size:
            token_bytes[token_id] = to_bytes(token)
    special: list[int] = []
    for added in tokenizer_json.get("added_tokens", ()):
        if added["id"] < vocab_size:
            token_bytes[added["id"]] = added["content"].encode()
            if added["special"]:
                special.append(added["id"])
    return VocabularyData(token_bytes, sorted(special), decoder.strip_leading_space)


def _flatten(decoder: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    if decoder is None:
        raise ModelLoadError("tokenizer.json has no decoder: its tokens cannot be turned into text")
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def _understand(steps: Iterable[Mapping[str, Any]]) -> _Decoder:
    replacements: list[tuple[str, str]] = []
    byte_level = byte_fallback = strip = False
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                byte_level = True
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                replacements.append((pattern, content))
            case {"type": "Strip", "content": " ", "start": 0 | 1 as start, "stop": 0}:
                strip = strip or start == 1
            case {"type": "Metaspace", "replacement": replacement}:
                replacements.append((replacement, " "))
                strip = strip or step.get("prepend_scheme", "always") != "never"
            case _:
                raise ModelLoadError(f"tokenizer.json: decoder {step.get('type')!r} is not supported: {step}")
    return _Decoder(tuple(replacements), byte_level, byte_fallback, strip)


def _token_to_bytes(decoder: _Decoder) -> Callable[[str], bytes]:
    alphabet = byte_level_alphabet() if decoder.byte_level else {}

    def to_bytes(token: str) -> bytes:
        for pattern, content in decoder.replacements:
            token = token.replace(pattern, content)
        if decoder.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        if decoder.byte_level and all(character in alphabet for character in token):
            return bytes(alphabet[character] for character in token)
        return token.encode()

    return to_bytes
