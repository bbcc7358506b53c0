"""The server's own figures: Prometheus metrics and the JSON of /v1/stats.

Owns: histograms over finished requests and percentiles over the latest ones. Counters and gauges are the
core's, read when asked for. Names follow vLLM's, with the prefix `pagurid:`; labels are bounded.
Must not know: transports.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

    from pagurid._core import OutputDelta, SchedulerStats
    from pagurid.async_llm import AsyncLLM

__all__ = ["ServerFigures"]

LATEST_REQUESTS = 1000
_TTFT_BUCKETS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
_ITL_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    10,
)
_REQUEST_BUCKETS = (
    0.01,
    0.05,
    0.1,
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
)


class ServerFigures:
    """Fed with every delta; read by /metrics and /v1/stats."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._registry = CollectorRegistry()
        self._registry.register(_CoreCollector(llm))
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token.", _TTFT_BUCKETS)
        self._itl = self._histogram("inter_token_latency_seconds", "Time between two tokens.", _ITL_BUCKETS)
        self._total = self._histogram("e2e_request_latency_seconds", "Arrival to end.", _REQUEST_BUCKETS)
        self._queue = self._histogram(
            "request_queue_time_seconds", "Arrival to first scheduled.", _REQUEST_BUCKETS
        )
        self._prefill = self._histogram(
            "request_prefill_time_seconds", "First scheduled to first token.", _REQUEST_BUCKETS
        )
        self._decode = self._histogram(
            "request_decode_time_seconds", "First token to last.", _REQUEST_BUCKETS
        )
        self._latest_ttft_ms: deque[float] = deque(maxlen=LATEST_REQUESTS)
        self._latest_queue_ms: deque[float] = deque(maxlen=LATEST_REQUESTS)
        self._latest_itl_ms: deque[float] = deque(maxlen=LATEST_REQUESTS)
        self._latest_rates: deque[float] = deque(maxlen=LATEST_REQUESTS)
        self._last_delta_at: dict[int, dict[int, float]] = {}

    def observe(self, delta: OutputDelta) -> None:
        """Counts one delta."""
        now = time.monotonic()
        last_delta_at = self._last_delta_at.setdefault(delta.request_id, {})
        last = last_delta_at.get(delta.index)
        if last is not None and delta.token_ids:
            # A reader that takes late gets several tokens at once: their mean gap is what it saw.
            gap = (now - last) / len(delta.token_ids)
            for _ in delta.token_ids:
                self._itl.observe(gap)
        last_delta_at[delta.index] = now
        metrics = delta.metrics
        if metrics is None:
            return
        self._queue.observe(metrics.queue_ms / 1000)
        self._total.observe(metrics.total_ms / 1000)
        self._latest_queue_ms.append(metrics.queue_ms)
        for value, histogram in (
            (metrics.ttft_ms, self._ttft),
            (metrics.prefill_ms, self._prefill),
            (metrics.decode_ms, self._decode),
        ):
            if value is not None:
                histogram.observe(value / 1000)
        for value, latest in (
            (metrics.ttft_ms, self._latest_ttft_ms),
            (metrics.inter_token_p50_ms, self._latest_itl_ms),
            (metrics.tokens_per_second, self._latest_rates),
        ):
            if value is not None:
                latest.append(value)

    def forget(self, request_id: int) -> None:
        """The request has ended, or nobody reads it any more."""
        self._last_delta_at.pop(request_id, None)

    def prometheus(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)

    def stats(self) -> dict[str, Any]:
        """The five figures of the server, and what explains them.

        Percentiles are over the latest 1,000 requests.
        """
        core = self._llm.stats()
        tokens = core.prompt_tokens + core.completion_tokens
        cost = _total_cost(core, self._llm)
        return {
            "ttft_ms": _percentiles(self._latest_ttft_ms),
            "tokens_per_second": {
                "while_busy": round(core.completion_tokens / core.busy_s, 3) if core.busy_s else None,
                "per_request": _percentiles(self._latest_rates),
            },
            "queue_ms": _percentiles(self._latest_queue_ms),
            "kv_cache": {
                "used_bytes": core.kv_cache_used_bytes,
                "usage": round(core.kv_cache_usage, 6),
                "total_blocks": core.total_blocks,
                "used_blocks": core.used_blocks,
                "cached_blocks": core.cached_blocks,
                "free_blocks": core.free_blocks,
            },
            "memory": dataclasses.asdict(self._llm.memory()),
            "cost": None
            if cost is None
            else {"total": cost, "per_1k_tokens": cost / tokens * 1000 if tokens else None},
            "inter_token_p50_ms": _percentiles(self._latest_itl_ms),
            "requests": {
                "running": core.num_running,
                "waiting": core.num_waiting,
                "finished": dict(core.requests_finished),
            },
            "tokens": {
                "prompt": core.prompt_tokens,
                "completion": core.completion_tokens,
                "cached": core.cached_tokens,
                "prefix_cache_queries": core.prefix_cache_queries_tokens,
            },
            "steps": {
                "total": core.steps,
                "failed": core.failed_steps,
                "last_tokens": core.last_step_tokens,
                "last_ms": round(core.last_step_ms, 3),
            },
            "preemptions": core.preemptions,
            "recomputed_tokens": core.recomputed_tokens,
            "busy_s": core.busy_s,
            "attributed_busy_s": core.attributed_busy_s,
            "uptime_s": round(core.uptime_s, 3),
        }

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"pagurid:{name}", text, buckets=buckets, registry=self._registry)


class _CoreCollector(Collector):
    """Reads the core's counters at the moment of the scrape."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    def collect(self) -> Iterable[Metric]:
        """Every metric the core counts."""
        core = self._llm.stats()
        yield _gauge("num_requests_running", "Requests in the batch.", core.num_running)
        yield _gauge("num_requests_waiting", "Requests in the queue.", core.num_waiting)
        yield _gauge("kv_cache_usage_perc", "KV blocks in use; 1 is all of them.", core.kv_cache_usage)
        yield _gauge("kv_cache_used_bytes", "KV memory in use.", core.kv_cache_used_bytes)
        memory = self._llm.memory()
        yield _gauge("model_weights_bytes", "Memory of the parameters.", memory.weights_bytes)
        yield _gauge("kv_cache_pool_bytes", "KV memory when all is in use.", memory.kv_pool_bytes)
        if memory.process_peak_bytes is not None:
            yield _gauge(
                "process_peak_memory_bytes", "The most in memory at once.", memory.process_peak_bytes
            )
        yield _counter("prompt_tokens", "Prompt tokens of admitted requests.", core.prompt_tokens)
        yield _counter("generation_tokens", "Tokens generated.", core.completion_tokens)
        yield _counter("prefix_cache_queries", "Prompt tokens looked up.", core.prefix_cache_queries_tokens)
        yield _counter("prefix_cache_hits", "Prompt tokens found.", core.cached_tokens)
        yield _counter("num_preemptions", "Sequences preempted.", core.preemptions)
        yield _counter("recomputed_tokens", "Tokens computed again after that.", core.recomputed_tokens)
        yield _counter("engine_steps", "Steps run.", core.steps)
        yield _counter("engine_failed_steps", "Steps that raised.", core.failed_steps)
        yield _counter("engine_busy_seconds", "Time spent in steps.", core.busy_s)
        cost = _total_cost(core, self._llm)
        if cost is not None:
            yield _counter("cost", "Busy time at the price of --cost-per-hour.", cost)
        finished = CounterMetricFamily(
            "pagurid:request_success", "Requests finished.", labels=["finished_reason"]
        )
        for reason, count in core.requests_finished.items():
            finished.add_metric([reason], count)
        yield finished


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pagurid:{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"pagurid:{name}", text, value=value)


def _total_cost(core: SchedulerStats, llm: AsyncLLM) -> float | None:
    per_hour = llm.config.cost_per_hour
    return None if per_hour is None else core.busy_s / 3600 * per_hour


def _percentiles(values: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p99": None}
    last = len(ordered) - 1
    return {"p50": round(ordered[round(last * 0.5)], 3), "p99": round(ordered[round(last * 0.99)], 3)}
