"""What `LLM` answers with.

Must not know: the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagurid._core import FinishReason, RequestMetrics, TokenLogprobs

__all__ = ["CompletionOutput", "RequestOutput"]


@dataclass(slots=True)
class CompletionOutput:
    """One answer."""

    index: int
    """Which of the request's n answers."""
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    """All tokens chosen, a hidden end-of-sequence token included."""
    logprobs: list[TokenLogprobs] | None = None
    """One entry per token if asked for."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string that ended it."""
    error: str | None = None
    """With finish_reason "error": what happened."""


@dataclass(slots=True)
class RequestOutput:
    """All answers to one prompt."""

    request_id: int
    prompt: str | None
    """None if the prompt came as token ids."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    metrics: RequestMetrics | None = None
    """Time to first token, tokens per second, queue time, KV memory, cost and more; set at the end."""
