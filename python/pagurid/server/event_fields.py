"""From what the engine says to the fields of pagurid.v1 events.

Must not know: sockets, sequence numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagurid.server.figures import cost_of, timing_of, usage_of

if TYPE_CHECKING:
    from pagurid._core import OutputDelta, RequestMetrics, RequestProgress
    from pagurid.server.protocol import Generate

__all__ = ["delta_fields", "done_fields", "status_fields"]


def status_fields(progress: RequestProgress) -> dict[str, Any]:
    """Of a `status` frame."""
    fields: dict[str, Any] = {"state": progress.state}
    if progress.position is not None:
        fields["position"] = progress.position
    if progress.wait_ms_estimate is not None:
        fields["eta_ms"] = progress.wait_ms_estimate
    if progress.state == "prefill":
        fields["done"] = progress.prefill_done_tokens
        fields["total"] = progress.prefill_total_tokens
    if progress.cached_tokens is not None:
        fields["cached_tokens"] = progress.cached_tokens
    return fields


def delta_fields(delta: OutputDelta, generate: Generate) -> dict[str, Any] | None:
    """Fields of a `delta` frame beside its text; None if there is nothing to say."""
    fields: dict[str, Any] = {"index": delta.index, "n": delta.completion_tokens}
    if generate.stream.token_ids:
        fields["token_ids"] = delta.token_ids
    if delta.logprobs is not None:
        fields["logprobs"] = [
            {"token_id": entry.token_id, "logprob": entry.logprob, "top": entry.top}
            for entry in delta.logprobs
        ]
    wanted_tokens = delta.token_ids and len(fields) > 2
    return fields if delta.text or wanted_tokens else None


def done_fields(metrics: RequestMetrics, reasons: list[str]) -> dict[str, Any]:
    """Of a `done` frame; `reasons` has one entry per answer."""
    fields: dict[str, Any] = {
        "finish_reason": reasons[0],
        "usage": usage_of(metrics),
        "timing": timing_of(metrics),
        **cost_of(metrics),
    }
    if len(reasons) > 1:
        fields["finish_reasons"] = reasons
    return fields
