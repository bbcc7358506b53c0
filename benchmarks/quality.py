"""What rounding costs: perplexity under each `--quantization`, and how far the logits are from float32's.

    python benchmarks/quality.py [--model smollm2] [--text tests/texts/alice.txt] [--json FILE]

Float32 (`none`) is the file's weights, dequantised. KL is the mean Kullback-Leibler divergence from float32,
greedy the share of positions where the most likely token is the same.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import torch

from pagurid.config import DEFAULT_MODEL, Quantization
from pagurid.models import KvCache, StepInputs
from pagurid.pull import resolve_model
from pagurid.weights import load_model

if TYPE_CHECKING:
    from pagurid.models import LlamaForCausalLM

BLOCK_SIZE = 16


def log_probabilities(model: LlamaForCausalLM, token_ids: list[int]) -> torch.Tensor:
    """[T, vocab_size], float64: of the token that follows each token, computed in one step."""
    length = len(token_ids)
    blocks = -(-length // BLOCK_SIZE)
    rows = torch.arange(length, dtype=torch.int32)
    inputs = StepInputs(
        token_ids=torch.tensor(token_ids, dtype=torch.int32),
        positions=rows,
        slot_mapping=rows.to(torch.int64) + BLOCK_SIZE,  # block 0 is nobody's
        query_start=torch.tensor([0, length], dtype=torch.int32),
        context_lens=torch.tensor([length], dtype=torch.int32),
        block_tables=torch.arange(1, blocks + 1, dtype=torch.int32).unsqueeze(0),
        logits_rows=rows,
    )
    return model(inputs, KvCache(model.config, blocks + 1, BLOCK_SIZE)).double().log_softmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--text", type=Path, default=Path(__file__).parent.parent / "tests/texts/alice.txt")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    path = resolve_model(arguments.model)
    exact: torch.Tensor | None = None
    results: dict[str, dict[str, float]] = {}
    print(f"{'quantization':<14}{'perplexity':>12}{'over float32':>14}{'KL':>12}{'greedy':>10}")
    for quantization in sorted(get_args(Quantization), key=lambda name: name != "none"):
        if quantization == "auto":
            continue
        loaded = load_model(path, quantization=quantization)
        token_ids = loaded.tokenizer.encode(arguments.text.read_text(encoding="utf-8"))
        got = log_probabilities(loaded.model, token_ids)
        exact = got if exact is None else exact
        following = torch.tensor(token_ids[1:]).unsqueeze(1)
        perplexity = math.exp(-got[:-1].gather(1, following).mean())
        results[quantization] = {
            "perplexity": perplexity,
            "over_float32": perplexity / results["none"]["perplexity"] - 1 if results else 0.0,
            "kl": float((exact.exp() * (exact - got)).sum(-1).mean()),
            "greedy_agreement": float((exact.argmax(-1) == got.argmax(-1)).double().mean()),
        }
        figures = results[quantization]
        print(
            f"{quantization:<14}{perplexity:>12.5f}{figures['over_float32']:>13.4%} {figures['kl']:>12.2e}"
            f"{figures['greedy_agreement']:>9.2%}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
