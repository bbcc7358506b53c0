"""What rounding costs: perplexity under each `--quantization`, and how far the logits are from float32's.

    python benchmarks/quality.py [--model smollm2] [--text tests/texts/alice.txt] [--json FILE]
        [--llama-perplexity PROGRAM]

Float32 (`none`) is the file's weights, dequantised. KL is the mean Kullback-Leibler divergence from float32,
greedy the share of positions where the most likely token is the same. Windowed perplexity is what llama.cpp's
`llama-perplexity -c 256` measures: windows of 256 tokens, of which the second half counts; with that program
its figure for the same file and text is shown beside.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
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
WINDOW_TOKENS = 256


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


def perplexity(losses: torch.Tensor) -> float:
    return math.exp(losses.mean())


def next_token_losses(log_probabilities: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
    """[T - 1]: −log p of each token but the first."""
    following = torch.tensor(token_ids[1:]).unsqueeze(1)
    return -log_probabilities[:-1].gather(1, following).squeeze(1)


def windowed_losses(model: LlamaForCausalLM, token_ids: list[int]) -> torch.Tensor:
    losses = []
    for start in range(0, len(token_ids) - WINDOW_TOKENS + 1, WINDOW_TOKENS):
        window = token_ids[start : start + WINDOW_TOKENS]
        losses.append(next_token_losses(log_probabilities(model, window), window)[WINDOW_TOKENS // 2 :])
    return torch.cat(losses)


def llama_cpp_perplexity(program: Path, model: Path, text: Path) -> float:
    command = [program, "-m", model, "-f", text, "-c", str(WINDOW_TOKENS), "-b", str(WINDOW_TOKENS)]
    output = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, timeout=600)
    found = re.search(r"Final estimate: PPL = ([\d.]+)", output.stdout + output.stderr)
    if found is None:
        raise SystemExit(f"{program} gave no perplexity:\n{output.stdout}{output.stderr}")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--text", type=Path, default=Path(__file__).parent.parent / "tests/texts/alice.txt")
    parser.add_argument("--llama-perplexity", type=Path, metavar="PROGRAM")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    path = resolve_model(arguments.model)
    exact: torch.Tensor | None = None
    results: dict[str, dict[str, float]] = {}
    print(
        f"{'quantization':<14}{'perplexity':>12}{'over float32':>14}{'KL':>12}{'greedy':>10}{'windowed':>12}"
    )
    for quantization in sorted(get_args(Quantization), key=lambda name: name != "none"):
        if quantization == "auto":
            continue
        loaded = load_model(path, quantization=quantization)
        token_ids = loaded.tokenizer.encode(arguments.text.read_text(encoding="utf-8"))
        got = log_probabilities(loaded.model, token_ids)
        exact = got if exact is None else exact
        whole = perplexity(next_token_losses(got, token_ids))
        results[quantization] = {
            "perplexity": whole,
            "windowed_perplexity": perplexity(windowed_losses(loaded.model, token_ids)),
            "over_float32": whole / results["none"]["perplexity"] - 1 if results else 0.0,
            "kl": float((exact.exp() * (exact - got)).sum(-1).mean()),
            "greedy_agreement": float((exact.argmax(-1) == got.argmax(-1)).double().mean()),
        }
        figures = results[quantization]
        print(
            f"{quantization:<14}{whole:>12.5f}{figures['over_float32']:>13.4%} {figures['kl']:>12.2e}"
            f"{figures['greedy_agreement']:>9.2%} {figures['windowed_perplexity']:>12.5f}"
        )
    if arguments.llama_perplexity:
        figure = llama_cpp_perplexity(arguments.llama_perplexity, path, arguments.text)
        results["llama.cpp"] = {"windowed_perplexity": figure}
        print(f"{'llama.cpp':<14}{figure:>60.5f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
