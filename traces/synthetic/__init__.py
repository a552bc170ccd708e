"""Workloads made of the quantile grids of real traces: `generate("chat", n=2000, seed=7, rate=1.5)`."""

from traces.synthetic.presets import PRESETS, Preset, generate, write_preset

__all__ = ["PRESETS", "Preset", "generate", "write_preset"]
