"""Rotary position tables.

Owns: inverse frequencies under each kind of scaling, and the table of cosines and sines. Computed in
float32 in the order that `transformers` does it, so that greedy text is the same to the last bit.
Must not know: how q and k are laid out (half-split pairs; the ops do that).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pagurid.errors import ModelLoadError

if TYPE_CHECKING:
    from pagurid.models.config import ModelConfig, RopeScaling

__all__ = ["cos_sin_table", "inverse_frequencies"]


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """[head_dim / 2], float32: radians per position of each rotary pair."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float32) / config.head_dim
    plain = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "factors":
        if len(scaling.factors) != len(plain):
            raise ModelLoadError(
                f"rope_freqs.weight: expected head_dim / 2 = {len(plain)} values, got {len(scaling.factors)}"
            )
        return plain / torch.tensor(scaling.factors, dtype=torch.float32)
    return _llama3(plain, scaling)


def cos_sin_table(config: ModelConfig, num_positions: int) -> torch.Tensor:
    """[num_positions, head_dim]: head_dim / 2 cosines, then as many sines."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(config))  # [num_positions, head_dim / 2]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _llama3(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long waves are stretched, short ones kept, those between blended linearly."""
    original = scaling.original_max_position_embeddings
    wavelength = 2 * math.pi / plain
    smooth = (original / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * plain / scaling.factor + smooth * plain
    stretched = torch.where(wavelength > original / scaling.low_freq_factor, plain / scaling.factor, plain)
    between = (wavelength >= original / scaling.high_freq_factor) & (
        wavelength <= original / scaling.low_freq_factor
    )
    return torch.where(between, blended, stretched)
