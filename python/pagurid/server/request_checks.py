"""What both doors refuse in the same words: well typed, but without sense here or not served.

Must not know: transports, the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagurid.errors import InvalidRequest, ModelNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["check_logprobs", "check_messages", "check_model", "check_text_answer"]

MAX_LOGPROBS = 20


def check_model(model: str | None, served: Iterable[str]) -> None:
    """Raises ModelNotFound for a model that is none of the served; None is whichever is."""
    names = list(served)
    if model is not None and model not in names:
        raise ModelNotFound(
            f"model {model[:100]!r} is not served here; served: {', '.join(names)}", param="model"
        )


def check_messages(messages: Sequence[Any]) -> None:
    """Raises InvalidRequest for a chat without messages."""
    if not messages:
        raise InvalidRequest("messages: expected at least one message, got none", param="messages")


def check_text_answer(response_format: Mapping[str, Any] | None, tools: Sequence[Any] | None) -> None:
    """Raises InvalidRequest for answers other than plain text."""
    if response_format is not None and response_format.get("type") != "text":
        raise InvalidRequest('response_format: only {"type": "text"} is served', param="response_format")
    if tools:
        raise InvalidRequest("tools: this server does not call tools", param="tools")


def check_logprobs(count: int | None, param: str) -> None:
    """Raises InvalidRequest for more alternatives per token than are reported."""
    if count is not None and not 0 <= count <= MAX_LOGPROBS:
        raise InvalidRequest(f"{param}: expected 0 to {MAX_LOGPROBS}, got {count}", param=param)
