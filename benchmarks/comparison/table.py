"""What a run found, for a terminal.

Must not know: how anything is measured or divided.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comparison.ratios import Figures, Ratio


def print_tables(figures: Figures, ratios: list[Ratio]) -> None:
    """Medians of the rounds, then the ratios, then who is missing and why."""
    if figures.engine:
        print("\nEngines, tokens/s")
    for name, measured in figures.engine.items():
        medians = (f"{what} {_median(rates)}" for what, rates in measured.items())
        print(f"  {name:<32} {'  '.join(medians)}")
    if figures.server:
        print("\nServers: 128 tokens in, 128 out; milliseconds, 50th / 99th of 100")
        columns = f"{'tokens/s':>10}{'first token':>18}{'between tokens':>18}"
        print(f"  {'':<32}{'clients':>8}{columns}{'start s':>10}{'peak MB':>10}")
    for name, server in figures.server.items():
        for clients, rounds in server["rounds"].items():
            loads = [load for load in rounds if load is not None]
            columns = f"{_median([load['tokens_per_second'] for load in loads]):>10}"
            columns += f"{_percentiles(loads, 'ttft_ms'):>18}{_percentiles(loads, 'itl_ms'):>18}"
            memory = server.get("peak_rss_bytes", 0) / 1e6
            print(f"  {name:<32}{clients:>8}{columns}{server['start_s']:>10.1f}{memory:>10.0f}")
    print("\nRatios")
    for ratio in ratios:
        value = "–" if ratio.value is None else f"{ratio.value:.2f}"
        goal = "" if ratio.goal is None else f"{'≤' if ratio.at_most else '≥'} {ratio.goal:g}"
        mark = {True: "reached", False: "missed", None: ""}[ratio.reached]
        print(f"  {ratio.name:<32}{value:>8}  {goal:<8}{mark:<9}{ratio.note}")
    if figures.unavailable:
        print("\nNot, or not always, measured")
    for name, reason in figures.unavailable.items():
        print(f"  {name}: {reason}")


def _median(rates: list[float | None]) -> str:
    known = [rate for rate in rates if rate is not None]
    return f"{statistics.median(known):.0f}" if known else "–"


def _percentiles(loads: list[dict[str, Any]], figure: str) -> str:
    each = (_median_to_1([load[figure][percentile] for load in loads]) for percentile in ("p50", "p99"))
    return " / ".join(each)


def _median_to_1(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "–"
