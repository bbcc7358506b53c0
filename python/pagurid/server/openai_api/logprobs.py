"""Log-probabilities in the two formats of the OpenAI API.

Must not know: the engine, how answers are sent.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagurid._core import TokenLogprobs

__all__ = ["chat_logprobs", "completion_logprobs"]


def chat_logprobs(entries: Sequence[TokenLogprobs], token_bytes: Sequence[bytes]) -> dict[str, Any]:
    """`{"content": [{token, logprob, bytes, top_logprobs}]}`."""

    def token(token_id: int, logprob: float) -> dict[str, Any]:
        raw = token_bytes[token_id]
        return {"token": raw.decode(errors="replace"), "logprob": logprob, "bytes": list(raw)}

    return {
        "content": [
            {
                **token(entry.token_id, entry.logprob),
                "top_logprobs": [token(token_id, logprob) for token_id, logprob in entry.top],
            }
            for entry in entries
        ],
        "refusal": None,
    }


def completion_logprobs(
    entries: Sequence[TokenLogprobs], token_bytes: Sequence[bytes], *, text_offset: int
) -> dict[str, Any]:
    """`{tokens, token_logprobs, top_logprobs, text_offset}`; offsets count characters of the answer.

    A token that is no whole text by itself is named by its bytes, such as `bytes:\\xe6\\x97`.
    """

    def name(token_id: int) -> str:
        raw = token_bytes[token_id]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    offsets = []
    for entry in entries:
        offsets.append(text_offset)
        text_offset += len(decoder.decode(token_bytes[entry.token_id]))
    return {
        "tokens": [name(entry.token_id) for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [
            # The chosen token, too, if it is not among the most likely (D12).
            {name(token_id): logprob for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob))}
            for entry in entries
        ],
        "text_offset": offsets,
    }
