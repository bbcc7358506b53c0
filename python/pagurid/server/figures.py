"""One request's figures as JSON: the same words in `done`, in the OpenAI answers and in the UI.

Must not know: transports, how the figures are measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagurid._core import RequestMetrics

__all__ = ["TIMING_NAMES", "cost_of", "timing_of", "usage_of"]

TIMING_NAMES = (
    "queue_ms",
    "prefill_ms",
    "ttft_ms",
    "decode_ms",
    "total_ms",
    "inter_token_p50_ms",
    "inter_token_p99_ms",
    "tokens_per_second",
    "preemptions",
    "kv_cache_peak_bytes",
    "busy_ms",
)


def timing_of(metrics: RequestMetrics) -> dict[str, float | int]:
    """Times in ms with three decimals, rates per second, sizes in bytes; what had no event is absent."""
    timing: dict[str, float | int] = {}
    for name in TIMING_NAMES:
        value = getattr(metrics, name)
        if value is not None:
            timing[name] = round(value, 3) if isinstance(value, float) else value
    return timing


def cost_of(metrics: RequestMetrics) -> dict[str, float]:
    """`cost` and `cost_per_1k_tokens` in the unit of --cost-per-hour; empty without one."""
    if metrics.cost is None:
        return {}
    cost = {"cost": metrics.cost}
    if metrics.cost_per_1k_tokens is not None:
        cost["cost_per_1k_tokens"] = metrics.cost_per_1k_tokens
    return cost


def usage_of(metrics: RequestMetrics) -> dict[str, int]:
    """Token counts: of the prompt, of it found in the prefix cache, and of the answers."""
    return {
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "completion_tokens": metrics.completion_tokens,
    }
