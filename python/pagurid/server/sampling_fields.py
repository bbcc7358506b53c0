"""How a request is sampled and scheduled, in its JSON: the same for the WebSocket and the OpenAI routes.

Owns: names, types and structural bounds (a bool is no int, 1.5 is no int). What a value means and its
semantic limits are `pagurid.SamplingParams`' business, which names the parameter in its error.
Must not know: transports, the engine.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

__all__ = ["Count", "RequestFields", "SamplingFields", "sampling_arguments"]

Count = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class RequestFields(Protocol):
    """What a request says of itself to the scheduler; vLLM's names where OpenAI has none."""

    user: str | None
    priority: Count | None
    cache_salt: str | None


class SamplingFields(msgspec.Struct, kw_only=True):
    """OpenAI's names, and vLLM's where OpenAI has none. `null` means the default everywhere."""

    n: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[Count, float] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Count] | None = None
    include_stop_str_in_output: bool | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None


_PLAIN_NAMES = tuple(name for name in SamplingFields.__struct_fields__ if name != "max_completion_tokens")


def sampling_arguments(fields: SamplingFields, *, logprobs: int | None = None) -> dict[str, Any]:
    """The keyword arguments for `SamplingParams`: what the client set, nothing else."""
    arguments = {name: value for name in _PLAIN_NAMES if (value := getattr(fields, name)) is not None}
    if fields.max_completion_tokens is not None:
        arguments["max_tokens"] = fields.max_completion_tokens
    if logprobs is not None:
        arguments["logprobs"] = logprobs
    return arguments
