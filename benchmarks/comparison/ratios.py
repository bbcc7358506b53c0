"""From the figures of a run to ratios: what is divided by what, and the goal of each.

Invariant: a ratio is the median over rounds of figures that were measured in the same round; one that
could not be formed is there as None, with the reason.
Must not know: how anything is measured.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

EIGHT_BIT = "pagurid int8, Q8_0"
FAITHFUL = "pagurid, Q4_1"
LLAMA = {kind: f"llama.cpp {kind}" for kind in ("Q8_0", "F16", "Q4_1", "Q4_0")}
BUSY, QUIET = "decode_16 beside a busy process", "decode_16 undisturbed"
WITHOUT_HTTP = "the server's load without HTTP"

# name: ours, theirs, measurement, at least
_ENGINE_RATIOS: dict[str, tuple[str, str, str, float]] = {
    "decode_1_q8_0": (EIGHT_BIT, LLAMA["Q8_0"], "decode_1", 2.0),
    "decode_1_q4_1": (FAITHFUL, LLAMA["Q4_1"], "decode_1", 2.3),
    "decode_1_q4_0": (FAITHFUL, LLAMA["Q4_0"], "decode_1", 1.5),
    "decode_16_q8_0": (EIGHT_BIT, LLAMA["Q8_0"], "decode_16", 3.5),
    "decode_32_q8_0": (EIGHT_BIT, LLAMA["Q8_0"], "decode_32", 3.0),
    "decode_16_faithful_vs_f16": (FAITHFUL, LLAMA["F16"], "decode_16", 2.5),
    "decode_32_faithful_vs_f16": (FAITHFUL, LLAMA["F16"], "decode_32", 2.5),
    "prefill_512_q8_0": (EIGHT_BIT, LLAMA["Q8_0"], "prefill_512", 2.7),
    "prefill_512_faithful_vs_f16": (FAITHFUL, LLAMA["F16"], "prefill_512", 2.0),
}
# name: ours, clients, at least
_SERVER_RATIOS: dict[str, tuple[str, int, float]] = {
    "server_1": (FAITHFUL, 1, 1.8),
    "server_16_q8_0": (EIGHT_BIT, 16, 3.0),
    "server_32_q8_0": (EIGHT_BIT, 32, 3.0),
    "server_16_faithful": (FAITHFUL, 16, 2.2),
    "server_32_faithful": (FAITHFUL, 32, 2.2),
}
# suffix, figure, percentile, at most so much of the peer's with one client, and with more
_LATENCIES: tuple[tuple[str, str, str, float | None, float | None], ...] = (
    ("ttft_p50", "ttft_ms", "p50", 0.5, None),
    ("ttft_p99", "ttft_ms", "p99", None, 1.0),
    ("itl_p99", "itl_ms", "p99", None, 1.0),
)

TWO_AVX2_BUILDS = 1.5
"""The goal of all throughputs when both sides are held to AVX2."""


@dataclass(slots=True)
class Figures:
    """Of a run, by who was measured. Lists have one entry per round, None where it failed."""

    engine: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """Name, then measurement: tokens per second."""
    server: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name: `start_s`, `peak_rss_bytes`, `rounds` (clients: what the load script said, per round)."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Name: why it was not, or not always, measured."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """`value` is None where it could not be formed; `note` says why, or who is compared."""

    name: str
    value: float | None
    goal: float | None
    at_most: bool
    note: str

    @property
    def reached(self) -> bool | None:
        if self.value is None or self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def ratios_of(figures: Figures, isa: str | None) -> list[Ratio]:
    """All, in the order of the table."""
    found = []
    for name, (ours, theirs, measurement, goal) in _ENGINE_RATIOS.items():
        value, note = _engine_ratio(figures, (ours, measurement), (theirs, measurement))
        found.append(Ratio(name, value, TWO_AVX2_BUILDS if isa else goal, False, note))
    for name, (ours, clients, goal) in _SERVER_RATIOS.items():
        found += _server_ratios(figures, name, ours, clients, TWO_AVX2_BUILDS if isa else goal)
    over_engine = _paired(
        _throughputs(figures, FAITHFUL, 16), figures.engine.get(WITHOUT_HTTP, {}).get("16 clients", [])
    )
    reason = _why_not(figures, FAITHFUL, WITHOUT_HTTP) or "16 clients were not measured"
    note = f"{FAITHFUL}: 16 clients / {WITHOUT_HTTP}" if over_engine is not None else reason
    found.append(Ratio("server_over_engine", over_engine, 0.85, False, note))
    value, note = _engine_ratio(figures, (FAITHFUL, BUSY), (FAITHFUL, QUIET))
    found.append(Ratio("busy_over_quiet", value, 0.45, False, note))
    return found


def best_peer(figures: Figures, clients: int) -> str | None:
    """The peer with the most tokens per second, in the median of the rounds."""
    medians = {
        name: statistics.median(known)
        for name in figures.server
        if not name.startswith("pagurid")
        and (known := [rate for rate in _throughputs(figures, name, clients) if rate is not None])
    }
    return max(medians, key=medians.__getitem__, default=None)


def _server_ratios(figures: Figures, name: str, ours: str, clients: int, goal: float) -> list[Ratio]:
    peer = best_peer(figures, clients)
    value = None
    if peer is None:
        note = f"no peer was measured with {clients} clients"
    else:
        value = _paired(_throughputs(figures, ours, clients), _throughputs(figures, peer, clients))
        note = f"{ours} / the best peer, {peer}"
        if value is None:
            note = _why_not(figures, ours, peer) or f"{clients} clients were not measured"
    found = [Ratio(name, value, goal, False, note)]
    for suffix, figure, percentile, alone, among_others in _LATENCIES:
        at_most = alone if clients == 1 else among_others
        if at_most is not None and peer is not None and value is not None:
            both = (_latencies(figures, who, clients, figure, percentile) for who in (ours, peer))
            latency = _paired(*both)
            found.append(Ratio(f"{name}_{suffix}", latency, at_most, True, f"{ours} / {peer}"))
    return found


def _engine_ratio(
    figures: Figures, ours: tuple[str, str], theirs: tuple[str, str]
) -> tuple[float | None, str]:
    value = _paired(*(figures.engine.get(who, {}).get(what, []) for who, what in (ours, theirs)))
    if value is not None:
        same = ours[0] == theirs[0]
        return value, f"{ours[0]}: {ours[1]} / {theirs[1]}" if same else f"{ours[0]} / {theirs[0]}"
    return None, _why_not(figures, ours[0], theirs[0]) or "not measured in this run"


def _why_not(figures: Figures, *names: str) -> str:
    return "; ".join(f"{name}: {figures.unavailable[name]}" for name in names if name in figures.unavailable)


def _rounds(figures: Figures, name: str, clients: int) -> list[dict[str, Any] | None]:
    rounds: list[dict[str, Any] | None] = figures.server.get(name, {}).get("rounds", {}).get(str(clients), [])
    return rounds


def _throughputs(figures: Figures, name: str, clients: int) -> list[float | None]:
    return [None if load is None else load["tokens_per_second"] for load in _rounds(figures, name, clients)]


def _latencies(figures: Figures, name: str, clients: int, figure: str, percentile: str) -> list[float | None]:
    return [None if load is None else load[figure][percentile] for load in _rounds(figures, name, clients)]


def _paired(ours: list[float | None], theirs: list[float | None]) -> float | None:
    both = [a / b for a, b in zip(ours, theirs, strict=False) if a is not None and b is not None and b > 0]
    return statistics.median(both) if both else None
