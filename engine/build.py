"""From a model and the knobs a person asked for to an engine that is ready to run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.clock import Clock, RealClock
from engine.collector import keep_collector_quiet
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.executors.torch_executor import TorchExecutor
from engine.host import EngineInfo
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.models.tiny import tiny_config, tiny_weights
from engine.models.weights import load_weights
from engine.policies import find_policy
from engine.tokenizer import Tokenizer

MOST_THREADS = 4 * (os.cpu_count() or 1)
"""More only get into each other's way, and at some tens of thousands the OpenMP runtime dies."""
Progress = Callable[[str, int, int], None]
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Built(NamedTuple):
    engine: Engine
    info: EngineInfo
    tokenizer: Tokenizer


def build_engine(
    model: Path | None,
    asked: dict[str, Any],
    *,
    model_name: str,
    dtype: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Built:
    """Load a model folder (None: the built-in tiny model) and put an engine around it.

    `asked` holds the knobs that were given; the rest are defaults. dtype auto is bfloat16, or float32 for the tiny
    model. Raises ConfigError or ModelError, naming what is wrong, before any weight is read where that is possible.
    """
    tell = progress or (lambda stage, done, total: None)
    tell("reading the configuration", 0, 1)
    shape = tiny_config() if model is None else ModelConfig.from_folder(model)
    where = _device(device)
    kind = _dtype(dtype, "float32" if model is None else "bfloat16")
    config = EngineConfig.resolve(asked, shape.max_position_embeddings, lambda size: size * _token_bytes(shape, kind))
    config.check_live()
    find_policy(config.policy)
    _check_memory(shape, config, kind, where)
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise ConfigError("threads", f"{threads} is out of range, allowed: 1..{MOST_THREADS}")
        torch.set_num_threads(threads)
    tokenizer = Tokenizer.bytes() if model is None else Tokenizer.from_folder(model)

    if model is None:
        weights = {name: tensor.to(where, kind) for name, tensor in tiny_weights().items()}
    else:
        weights = load_weights(model, shape, kind, where, lambda done, total: tell("loading weights", done, total))
    tell("preparing the model", 0, 1)
    decoder = Decoder(shape, weights, config.model_len)
    keep_collector_quiet()
    clock = clock or RealClock()
    executor = TorchExecutor(decoder, config, clock, seed)
    tell("ready", 1, 1)
    info = EngineInfo(
        model=model_name,
        device=_device_name(where),
        dtype=str(kind).removeprefix("torch."),
        threads=torch.get_num_threads(),
        config=config,
        vocab_size=tokenizer.vocab_size,
        kv_bytes=executor.kv.num_bytes,
        parameters=decoder.num_parameters,
        notes=(*config.notes, *_warnings(tokenizer)),
    )
    return Built(Engine(config, executor, tokenizer, clock, shape.vocab_size), info, tokenizer)


def _warnings(tokenizer: Tokenizer) -> tuple[str, ...]:
    if tokenizer.eos_ids:
        return ()
    return ("no end-of-sequence id in config.json, generation_config.json or the tokenizer: answers run to max_tokens",)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ConfigError("device", f"{name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "cuda was asked for, but torch sees no GPU; use cpu or auto")
    return torch.device(name)


def _dtype(name: str, default: str) -> torch.dtype:
    chosen = default if name == "auto" else name
    if chosen not in DTYPES:
        raise ConfigError("dtype", f"{name!r} is not one of auto, {', '.join(DTYPES)}")
    return DTYPES[chosen]


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _token_bytes(shape: ModelConfig, dtype: torch.dtype) -> int:
    """KV bytes of one token."""
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * dtype.itemsize


def _check_memory(shape: ModelConfig, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a KV pool that memory cannot hold, before loading anything."""
    token = _token_bytes(shape, dtype)
    pool = token * config.block_size * config.num_blocks
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    if free is not None and pool > 0.9 * free:
        most = int(0.8 * free / (token * config.block_size))
        raise ConfigError(
            "num_blocks",
            f"a pool of {config.num_blocks} blocks needs {pool / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; "
            f"at most about {most} blocks fit",
        )


def _free_memory() -> int | None:
    """Bytes the kernel says can be had without swapping; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
