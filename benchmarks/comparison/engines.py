"""Engines without HTTP: Pagurid's in this process, llama.cpp's through its own bench programs.

Owns: the one shape that all measure: decoding 64 tokens from a context of 192, a prompt of 512.
Must not know: servers, ratios.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol

import engine

from comparison.install import Unavailable
from comparison.servers import HUGE_PAGES, OUTPUT_TOKENS, PROMPT_TOKENS, num_cpus
from pagurid import LLM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BENCH_WITHIN_S = 600
REPEATS_ALONE = 3
"""At batch 1 a measurement is short, so it is the median of some."""


class Engine(Protocol):
    """Tokens per second."""

    def decode(self, batch: int) -> float: ...

    def prefill(self) -> float: ...


class PaguridEngine:
    """`pagurid.LLM`."""

    def __init__(self, model: Path, quantization: str) -> None:
        self._llm = engine.load_engine(str(model), quantization)

    def decode(self, batch: int) -> float:
        repeats = REPEATS_ALONE if batch == 1 else 1
        return statistics.median(engine.decode_tokens_per_second(self._llm, batch) for _ in range(repeats))

    def prefill(self) -> float:
        return statistics.median(engine.prefill_tokens_per_second(self._llm) for _ in range(REPEATS_ALONE))


class LlamaCppEngine:
    """llama-batched-bench and llama-bench."""

    def __init__(self, programs: Path, model: Path) -> None:
        self._programs = programs
        threads = str(num_cpus())
        self._options = ["-m", str(model), "-lm", "none", "-t", threads]

    def decode(self, batch: int) -> float:
        repeats = REPEATS_ALONE if batch == 1 else 1
        context = batch * (engine.CONTEXT_TOKENS + engine.STEPS)
        options = ["-npp", str(engine.CONTEXT_TOKENS), "-ntg", str(engine.STEPS), "-c", str(context)]
        options += ["-npl", ",".join([str(batch)] * repeats), "-tb", str(num_cpus())]
        output = self._run("llama-batched-bench", [*options, "--output-format", "jsonl"])
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return float(statistics.median(line["speed_tg"] for line in lines))

    def prefill(self) -> float:
        options = ["-p", str(engine.PREFILL_TOKENS), "-n", "0", "-r", str(REPEATS_ALONE), "-o", "json"]
        results: list[dict[str, Any]] = json.loads(self._run("llama-bench", options))
        return float(statistics.median(results[0]["samples_ts"]))

    def _run(self, program: str, options: list[str]) -> str:
        done = subprocess.run(
            [str(self._programs / program), *self._options, *options],
            env=os.environ | HUGE_PAGES,
            capture_output=True,
            text=True,
            timeout=BENCH_WITHIN_S,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise Unavailable(f"{program} failed: {lines[-1]}")
        return done.stdout


class ServedEngine:
    """The default engine on the load of the servers: what HTTP and streaming take is the difference."""

    def __init__(self, model: Path, quantization: str) -> None:
        # All options but the pool's size are those of `pagurid serve`.
        self._llm = LLM(str(model), quantization=quantization, kv_cache_memory_bytes=engine.KV_CACHE_BYTES)

    def tokens_per_second(self, concurrency: int, requests: int) -> float:
        elapsed_s = 0.0
        for first in range(0, requests, concurrency):
            prompts = engine.random_prompts(min(concurrency, requests - first), PROMPT_TOKENS)
            elapsed_s += engine.generate_s(self._llm, prompts, OUTPUT_TOKENS)
        return requests * OUTPUT_TOKENS / elapsed_s


@contextlib.contextmanager
def another_busy_process() -> Iterator[None]:
    """A loop that does nothing but take a core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
