"""A tiny model whose answers are nonsense and do not end by themselves, so that there is time to stop them.

Its end-of-sequence token gets the logit 0, far below the likeliest token's: the page's min_p drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file

from tiny_models import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT_TOKENS = 16384


def make_endless_model(directory: Path) -> Path:
    options = TinyModel(max_position_embeddings=CONTEXT_TOKENS)
    make_tiny_model(directory, options)
    weights_file = directory / "model.safetensors"
    weights = load_file(weights_file)
    weights["model.embed_tokens.weight"][options.eos_token_id] = 0.0
    save_file(weights, weights_file, metadata={"format": "pt"})
    return directory
