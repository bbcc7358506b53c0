"""Request bodies of the OpenAI routes, as strict types.

Owns: which fields there are, and refusing those that would be silently wrong (tools, constrained output, …).
Unknown fields are ignored, as OpenAI clients send many.
Must not know: the engine.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pagurid.errors import InvalidRequest
from pagurid.server.request_checks import check_logprobs, check_messages, check_text_answer
from pagurid.server.sampling_fields import Count, SamplingFields

__all__ = ["ChatCompletionBody", "CompletionBody", "StreamOptions"]

MAX_ANSWERS = 256


class StreamOptions(msgspec.Struct, kw_only=True):
    """`stream_options`."""

    include_usage: bool | None = None


class _Body(SamplingFields, kw_only=True):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: Count | None = None
    cache_salt: str | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatCompletionBody(_Body, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None

    def check(self) -> None:
        """Raises InvalidRequest."""
        check_messages(self.messages)
        check_text_answer(self.response_format, self.tools or self.functions)
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs: expected logprobs to be true with it", param="top_logprobs")
        check_logprobs(self.top_logprobs, "top_logprobs")

    @property
    def wanted_logprobs(self) -> int | None:
        """Top log-probabilities per token; None for none at all."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(_Body, kw_only=True):
    """POST /v1/completions."""

    prompt: Any = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    def check(self) -> None:
        """Raises InvalidRequest."""
        if self.suffix:
            raise InvalidRequest("suffix: this server does not fill in the middle", param="suffix")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise InvalidRequest(f"best_of: expected the same as n, got {self.best_of}", param="best_of")
        check_logprobs(self.logprobs, "logprobs")
        if self.echo and self.logprobs is not None:
            raise InvalidRequest("echo: log-probabilities of the prompt are not served", param="echo")

    def prompts(self) -> list[str | list[int]]:
        """The prompts: a text, token ids, or a list of either. Raises InvalidRequest."""
        prompt = self.prompt
        if isinstance(prompt, str) or _is_ids(prompt):
            return [prompt]
        if isinstance(prompt, list) and prompt and all(isinstance(p, str) or _is_ids(p) for p in prompt):
            answers = len(prompt) * max(1, self.n or 1)
            if answers > MAX_ANSWERS:
                raise InvalidRequest(
                    f"prompt: expected at most {MAX_ANSWERS} answers (prompts × n), got {answers}",
                    param="prompt",
                )
            return prompt
        raise InvalidRequest(
            "prompt: expected a text, a list of token ids, or a non-empty list of either", param="prompt"
        )


def _is_ids(value: object) -> bool:
    """A non-empty list of token ids; an id that the model lacks is the engine's to refuse."""
    if not isinstance(value, list) or not value:
        return False
    return all(type(item) is int and 0 <= item < 2**31 for item in value)
