"""Measures the CPU kernels on the default model's shapes, against torch doing the same.

Owns: linear layers at batch sizes of decode and prefill, attention for decode and prefill, and the
machine's read bandwidth to set them beside. Each pair is measured in turns, so that a busy machine is
unfair to both alike; figures are medians. Weights and caches go round in more memory than L2 holds.

    python benchmarks/kernels.py [--json FILE] [--rounds N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from pagurid import ops
from pagurid._core import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# SmolLM2-135M: out_features, in_features
LINEARS = {
    "qkv": (960, 576),
    "attention_out": (576, 576),
    "gate_up": (3072, 576),
    "down": (576, 1536),
    "lm_head": (49152, 576),
}
BATCHES = (1, 16, 32, 256)
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16
# sequences, new tokens of each, context of each
ATTENTIONS = {
    "decode": [(1, 1, 512), (1, 1, 8192), (16, 1, 512), (16, 1, 2048)],
    "prefill": [(1, 256, 256), (1, 256, 2048), (1, 2048, 2048)],
}
TIMES = (("rust µs", 9), ("torch µs", 9), ("torch/rust", 10))
FOOTPRINT_BYTES = 96 << 20  # of a set of weights, as the layers of a model have it


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the CPU kernels against torch.")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each pair (default 15)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    ops.select("rust")
    figures: dict[str, Any] = {
        "isa": kernels.isa(),
        "num_threads": kernels.num_threads(),
        "torch_num_threads": torch.get_num_threads(),
        "read_gb_per_s": read_bandwidth(arguments.rounds),
    }
    print(
        f"{figures['isa']}, {figures['num_threads']} threads (torch {figures['torch_num_threads']}), "
        f"reads {figures['read_gb_per_s']:.1f} GB/s"
    )
    with torch.inference_mode():
        figures["linear"] = list(linear_figures(arguments.rounds))
        figures["attention"] = list(attention_figures(arguments.rounds))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def read_bandwidth(rounds: int) -> float:
    """GB/s of adding up a large tensor, on torch's threads."""
    memory = torch.ones(1 << 27)  # 512 MiB
    return memory.nbytes / median_s(memory.sum, rounds) / 1e9


def linear_figures(rounds: int) -> Iterator[dict[str, Any]]:
    header(("linear", 14), ("rows", 5), *TIMES, ("GB/s", 6), ("GFLOP/s", 8))
    for (name, (out_features, in_features)), rows in itertools.product(LINEARS.items(), BATCHES):
        copies = max(1, FOOTPRINT_BYTES // (4 * out_features * in_features))
        weights = [torch.randn(out_features, in_features) for _ in range(copies)]
        x = torch.randn(rows, in_features)
        repeat = min(copies, max(1, 4096 // rows))
        rust, other = paired_s(
            lambda: [ops.linear(x, weight) for weight in weights[:repeat]],  # noqa: B023
            lambda: [F.linear(x, weight) for weight in weights[:repeat]],  # noqa: B023
            rounds,
        )
        rust, other = rust / repeat, other / repeat
        figure = {
            "layer": name,
            "rows": rows,
            "rust_us": rust * 1e6,
            "torch_us": other * 1e6,
            "speedup": other / rust,
            "weights_gb_per_s": weights[0].nbytes / rust / 1e9,
            "gflop_per_s": 2 * rows * weights[0].numel() / rust / 1e9,
        }
        print(
            f"{name:14} {rows:5} {rust * 1e6:9.1f} {other * 1e6:9.1f} {other / rust:10.2f} "
            f"{figure['weights_gb_per_s']:6.1f} {figure['gflop_per_s']:8.1f}"
        )
        yield figure


def attention_figures(rounds: int) -> Iterator[dict[str, Any]]:
    header(("attention", 14), ("seqs", 5), ("new", 5), ("context", 8), *TIMES, ("GB/s", 6))
    for kind, shapes in ATTENTIONS.items():
        for sequences, new, context in shapes:
            blocks = -(-context // BLOCK_SIZE)
            num_blocks = sequences * blocks + 1
            kv_bytes = 2 * 4 * sequences * context * NUM_KV_HEADS * HEAD_DIM
            copies = max(1, min(16, FOOTPRINT_BYTES // kv_bytes))
            caches = [
                (
                    torch.randn(num_blocks, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE),
                    torch.randn(num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM),
                )
                for _ in range(copies)
            ]
            q = torch.randn(sequences * new, NUM_HEADS, HEAD_DIM)
            query_start = torch.arange(sequences + 1, dtype=torch.int32) * new
            context_lens = torch.full((sequences,), context, dtype=torch.int32)
            tables = (torch.randperm(sequences * blocks, dtype=torch.int32) + 1).view(sequences, blocks)
            scale = HEAD_DIM**-0.5
            # torch gets its keys and values side by side, without the pages.
            dense = [
                tuple(torch.randn(sequences, NUM_KV_HEADS, context, HEAD_DIM) for _ in "kv")
                for _ in range(copies)
            ]
            dense_q = torch.randn(sequences, NUM_HEADS, new, HEAD_DIM)
            seen = torch.arange(context) <= torch.arange(context - new, context).unsqueeze(1)

            def torch_attention() -> None:
                for k, v in dense:  # noqa: B023
                    F.scaled_dot_product_attention(
                        dense_q,  # noqa: B023
                        k,
                        v,
                        attn_mask=None if new in (1, context) else seen,  # noqa: B023
                        is_causal=1 < new == context,  # noqa: B023
                        enable_gqa=True,
                    )

            def rust_attention() -> None:
                for k_cache, v_cache in caches:  # noqa: B023
                    ops.paged_attention(
                        q,  # noqa: B023
                        k_cache,
                        v_cache,
                        query_start,  # noqa: B023
                        context_lens,  # noqa: B023
                        tables,  # noqa: B023
                        scale,  # noqa: B023
                    )

            rust, other = paired_s(rust_attention, torch_attention, rounds)
            rust, other = rust / copies, other / copies
            figure = {
                "kind": kind,
                "sequences": sequences,
                "new_tokens": new,
                "context": context,
                "rust_us": rust * 1e6,
                "torch_us": other * 1e6,
                "speedup": other / rust,
                "kv_gb_per_s": kv_bytes / rust / 1e9,
            }
            print(
                f"{kind:14} {sequences:5} {new:5} {context:8} {figure['rust_us']:9.1f} "
                f"{figure['torch_us']:9.1f} {figure['speedup']:10.2f} {figure['kv_gb_per_s']:6.1f}"
            )
            yield figure


def header(*columns: tuple[str, int]) -> None:
    print("\n" + " ".join(f"{name:>{width}}" for name, width in columns))


def paired_s(a: Callable[[], object], b: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of both, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(-2, rounds):
        for function, into in zip((a, b), times, strict=True):
            start = time.perf_counter()
            function()
            if turn >= 0:
                into.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def median_s(function: Callable[[], object], rounds: int) -> float:
    return paired_s(function, lambda: None, rounds)[0]


if __name__ == "__main__":
    main()
