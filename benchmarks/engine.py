"""The engine without HTTP: tokens per second of decoding at several batch sizes, and of a prompt.

    python benchmarks/engine.py [--model smollm2] [--quantization auto int8 none] [--json FILE]

Decoding: 64 steps from a context of 192 tokens. Prefill: one prompt of 512. Medians of rounds in which the
settings take turns, so that a busy minute of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from pagurid import LLM, SamplingParams
from pagurid.config import DEFAULT_MODEL

CONTEXT_TOKENS = 192
STEPS = 64
PREFILL_TOKENS = 512
KV_CACHE_BYTES = 1 << 30


def generate_s(llm: LLM, prompts: list[list[int]], max_tokens: int) -> float:
    start = time.perf_counter()
    llm.generate(prompts, SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True))
    return time.perf_counter() - start


def random_prompts(count: int, length: int) -> list[list[int]]:
    return [[random.randrange(100, 40_000) for _ in range(length)] for _ in range(count)]


def decode_tokens_per_second(llm: LLM, batch: int) -> float:
    """The prompts are in the prefix cache by then, so all sequences decode from the first step on.

    What is left of the prompts' time, a block each, is measured apart and taken off.
    """
    prompts = random_prompts(batch, CONTEXT_TOKENS)
    generate_s(llm, prompts, 1)
    prompt_s = generate_s(llm, prompts, 1)
    return batch * STEPS / (generate_s(llm, prompts, STEPS + 1) - prompt_s)


def prefill_tokens_per_second(llm: LLM) -> float:
    return PREFILL_TOKENS / generate_s(llm, random_prompts(1, PREFILL_TOKENS), 1)


def load_engine(model: str, quantization: str, threads: int | None = None) -> LLM:
    return LLM(
        model,
        quantization=quantization,
        max_num_batched_tokens=PREFILL_TOKENS,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        threads=threads,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--quantization", nargs="+", default=["auto", "int8", "none"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    engines = {name: load_engine(arguments.model, name, arguments.threads) for name in arguments.quantization}
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in engines}
    for _ in range(arguments.rounds):
        for name, llm in engines.items():
            for batch in arguments.batch:
                rate = decode_tokens_per_second(llm, batch)
                figures[name].setdefault(f"decode_{batch}", []).append(rate)
            figures[name].setdefault(f"prefill_{PREFILL_TOKENS}", []).append(prefill_tokens_per_second(llm))
    for name, of in figures.items():
        medians = "  ".join(f"{key} {statistics.median(rates):.0f}" for key, rates in of.items())
        print(f"{name:<6} tokens/s: {medians}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
