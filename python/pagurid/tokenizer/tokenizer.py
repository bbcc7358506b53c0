"""Text to token ids and back: `Tokenizer`.

Owns: one tokenizer of a model, whichever file it came from; its special tokens, its end-of-sequence ids
and its chat template. Safe to use from several threads.
Must not know: models, requests. Streaming is the core's: it has the same vocabulary.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tokenizers

from pagurid import _core
from pagurid.errors import InvalidRequest
from pagurid.tokenizer.chat_template import ChatTemplate
from pagurid.tokenizer.vocabulary import VocabularyData, vocabulary_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Tokenizer"]


class Tokenizer:
    """Made by `pagurid.tokenizer.directory` or `pagurid.tokenizer.gguf`."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        vocab_size: int,
        special_tokens: Mapping[str, str],
        eos_token_ids: Iterable[int],
        chat_templates: Mapping[str, str],
        file: str,
    ) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self.vocab_size = vocab_size
        """Length of a row of logits: at least the number of tokens."""
        self.special_tokens = dict(special_tokens)
        """`bos_token`, `eos_token`, … as templates spell them."""
        self.bos_token_id = self._id_of("bos_token")
        eos_token_id = self._id_of("eos_token")
        ends = {*eos_token_ids} | ({eos_token_id} if eos_token_id is not None else set())
        self.eos_token_ids = frozenset(token_id for token_id in ends if 0 <= token_id < vocab_size)
        """All ids that end a sequence (CASES D33). Those beyond the logits cannot be chosen."""
        self._chat_template = (
            ChatTemplate(chat_templates, self.special_tokens, file=file) if chat_templates else None
        )

    def encode(self, text: str, *, add_special_tokens: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of a text.

        `add_special_tokens`: begin (and end) as the model was trained to, usually with a BOS token; a
        rendered chat has that already. `parse_special`: `<|im_end|>` in the text becomes that token,
        else it is text like any other.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"the text holds an unpaired surrogate, U+{ord(text[error.start]):04X}, "
                f"at character {error.start}"
            ) from None
        backend = self._backend if parse_special else self._literal_backend
        return backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids: the same as the core streams."""
        return self.vocabulary().decode(token_ids, skip_special_tokens=skip_special_tokens)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The text of a conversation, up to where the model answers.

        `variables`: `tools`, and what this template alone knows (such as `enable_thinking`).
        """
        if self._chat_template is None:
            raise InvalidRequest(
                "this model has no chat template; use the completions API with a prompt instead",
                param="messages",
            )
        return self._chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` can work."""
        return self._chat_template is not None

    def vocabulary(self) -> _core.Vocabulary:
        """For the core's detokeniser."""
        return self._vocabulary

    def vocabulary_data(self) -> VocabularyData:
        """What `vocabulary` is made of."""
        content = json.loads(self._backend.to_str())
        return vocabulary_data(content, self._backend.get_vocab(with_added_tokens=False), self.vocab_size)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the tokenizer."""
        return self._backend.token_to_id(token)

    @cached_property
    def _vocabulary(self) -> _core.Vocabulary:
        data = self.vocabulary_data()
        return _core.Vocabulary(
            data.token_bytes,
            special_token_ids=data.special_token_ids,
            strip_leading_space=data.strip_leading_space,
        )

    @cached_property
    def _literal_backend(self) -> tokenizers.Tokenizer:
        """The same tokenizer with another setting: a setting cannot change while other threads encode."""
        literal = tokenizers.Tokenizer.from_str(self._backend.to_str())
        literal.encode_special_tokens = True
        return literal

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self._backend.token_to_id(token)
