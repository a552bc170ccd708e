"""Rotary position tables for the kinds of scaling in `ROPE_KINDS`.

Formulas: Su et al. 2021 (RoPE), position interpolation (Chen et al. 2023, "linear"), Llama 3.1's by-wavelength
interpolation ("llama3"). Computed in float32 as transformers does, so that angles agree to the last bit.
"""

from __future__ import annotations

import math

import torch

from engine.models.config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """[head_dim / 2] float32: radians a position for each pair of dimensions."""
    dim, scaling = config.head_dim, config.rope_scaling
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    inverse = 1.0 / (config.rope_theta**exponents)
    if scaling.kind == "linear":
        return inverse / scaling.factor
    if scaling.kind == "llama3":
        original = scaling.original_max_position_embeddings
        longest, shortest = original / scaling.low_freq_factor, original / scaling.high_freq_factor
        wavelength = 2 * math.pi / inverse
        slowed = torch.where(wavelength > longest, inverse / scaling.factor, inverse)
        share = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        between = (1 - share) * slowed / scaling.factor + share * slowed
        return torch.where((wavelength <= longest) & (wavelength >= shortest), between, slowed)
    return inverse


def tables(config: ModelConfig, length: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [length, head_dim / 2] in `dtype`."""
    angles = torch.arange(length).float()[:, None] * inverse_frequencies(config)[None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)
