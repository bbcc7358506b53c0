"""What the core costs: plan and commit of a step, blocks, prefix lookups, submits; and simulated policies.

    python benchmarks/core.py --json core.json

Each figure is the median of several fresh processes. `plan_commit_us`: `plan()` and `commit(tokens)` called
from Python, all sequences decoding after prompts of 200 tokens, block size 16; between steps the outputs are
taken, outside of the time. `simulation`: seeded scenarios on a simulated clock (the core's example
`simulate`); their figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pagurid._core import SamplingParams, Scheduler, SchedulerConfig

ROOT = Path(__file__).resolve().parent.parent
SIZES = (256, 1024, 4096)
PROMPT_TOKENS, BLOCK_SIZE = 200, 16
WARM_UP_STEPS, TIMED_STEPS = 50, 1000
SCENARIOS = {"fair": "fair", "waste": "fcfs", "kv": "fcfs", "wait": "fcfs"}


def plan_commit(num_seqs: int) -> dict[str, float]:
    """Quantiles of a step's plan + commit in this process, in microseconds.

    `p50`, `p999` with free blocks; `full_cache_p50`, `full_cache_p999` when the whole pool holds prefixes of
    requests that have ended, so that every new block is one that must be evicted first.
    """
    answer_tokens = WARM_UP_STEPS + TIMED_STEPS + 250
    blocks = -(-(PROMPT_TOKENS + answer_tokens) // BLOCK_SIZE)
    config = SchedulerConfig(
        num_blocks=num_seqs * blocks + 1,
        block_size=BLOCK_SIZE,
        max_model_len=PROMPT_TOKENS + answer_tokens,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=max(8192, num_seqs),
        vocab_size=50_000,
        max_queued_requests=num_seqs,
    )
    params = SamplingParams(temperature=0.0, max_tokens=answer_tokens, ignore_eos=True)
    generator = np.random.default_rng(0)

    def generation(scheduler: Scheduler) -> dict[str, float]:
        for _ in range(num_seqs):
            scheduler.submit(generator.integers(0, 50_000, PROMPT_TOKENS, dtype=np.int32), params)
        tokens = np.full(num_seqs, 7, np.int32)
        times_us = []
        while scheduler.has_unfinished_requests():
            start = time.perf_counter_ns()
            scheduler.plan()
            scheduler.commit(tokens[: scheduler.step_plan.num_logits_rows])
            time_us = (time.perf_counter_ns() - start) / 1e3
            if scheduler.step_plan.num_tokens == scheduler.step_plan.num_logits_rows == num_seqs:
                times_us.append(time_us)
            for request_id in scheduler.take_ready():
                scheduler.take_output(request_id)
        p50, p999 = np.percentile(times_us[WARM_UP_STEPS:][:TIMED_STEPS], [50, 99.9])
        return {"p50": round(float(p50), 1), "p999": round(float(p999), 1)}

    gc.disable()
    # The first generation's process is new, too: its memory is touched for the first time.
    generation(Scheduler(config))
    scheduler = Scheduler(config)
    figures = generation(scheduler)
    for key, value in generation(scheduler).items():
        figures[f"full_cache_{key}"] = value
    return figures


def _run(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _fresh_plan_commit(num_seqs: int, runs: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--plan-commit", str(num_seqs)]
    results = [json.loads(_run(command)) for _ in range(runs)]
    figures = {key: round(median(result[key] for result in results), 1) for key in results[0]}
    figures["p999_over_p50"] = round(median(result["p999"] / result["p50"] for result in results), 2)
    return figures


def _example(name: str, *arguments: str) -> str:
    return _run(
        ["cargo", "run", "-q", "--release", "-p", "pagurid-core", "--example", name, "--", *arguments]
    )


def _simulation() -> dict[str, Any]:
    figures = {}
    for scenario, policy in SCENARIOS.items():
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            _example("simulate", "--scenario", scenario, "--policy", policy, "--json", file.name)
            result: dict[str, Any] = json.loads(Path(file.name).read_text())
        for of_the_machine in ("seconds", "steps_per_second"):
            result.pop(of_the_machine)
        figures[scenario] = result
    waste = figures["waste"]
    waste["recomputed_least_waste_over_youngest"] = round(
        waste["least_waste_recomputed_tokens"] / waste["youngest_recomputed_tokens"], 3
    )
    return figures


def measure(runs: int) -> dict[str, Any]:
    """All figures, as they go into the JSON file."""
    figures: dict[str, Any] = {
        "plan_commit_us": {str(size): _fresh_plan_commit(size, runs) for size in SIZES},
    }
    figures.update(json.loads(_example("measure")))
    figures["simulation"] = _simulation()
    return figures


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--runs", type=int, default=5, help="fresh processes per figure (default 5)")
    parser.add_argument("--plan-commit", type=int, metavar="N", help="only this figure, in this process")
    arguments = parser.parse_args()
    if arguments.plan_commit:
        print(json.dumps(plan_commit(arguments.plan_commit)))
        return
    figures = measure(arguments.runs)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
