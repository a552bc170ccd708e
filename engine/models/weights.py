"""Weights from a folder of safetensors files.

What: `load_weights` returns every tensor of the architecture, under its Hugging Face name, and always
an `lm_head.weight` (the embedding itself where the two are tied).
Invariant: all names, shapes, types and shard files are checked before the first byte of weight data is
read; every tensor in the files is used exactly once or named in the error; no memory is ever returned
that a file did not fill.
Omission: no `.bin` checkpoints (they run code when opened) and no packed (quantised) tensors.

Tied heads follow transformers: tied and absent -> the embedding; tied and present with equal values ->
the embedding; tied and present with different values -> both are kept (the flag is wrong, the tensors
are not); embedding absent but head present and tied -> the head serves as both; untied and absent -> error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelError
from engine.models.config import ModelConfig, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FLOATS = ("F64", "F32", "F16", "BF16")
# Old checkpoints saved the rotary buffers; they follow from the config, so the saved copy is not used.
ROTARY_BUFFER = re.compile(r"(^|\.)rotary_emb\.inv_freq$")


class Found(NamedTuple):
    file: Path
    shape: tuple[int, ...]
    dtype: str


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the architecture, by Hugging Face name; the head is listed even when tied."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {EMBED: (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        for name, rows, columns in (
            ("self_attn.q_proj", config.q_size, hidden),
            ("self_attn.k_proj", config.kv_size, hidden),
            ("self_attn.v_proj", config.kv_size, hidden),
            ("self_attn.o_proj", hidden, config.q_size),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            shapes[prefix + name + ".weight"] = (rows, columns)
            if config.attention_bias if name.startswith("self_attn") else config.mlp_bias:
                shapes[prefix + name + ".bias"] = (rows,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


def load_weights(
    folder: Path,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, torch.Tensor]:
    """All weights, keyed by Hugging Face name, in `dtype` on `device`.

    A tensor already in `dtype` on the CPU stays a read-only view of the mapped file: do not write to it.
    `progress(done, total)` counts tensors. Raises `ModelError` naming the file or tensors at fault.
    """
    with ExitStack() as stack:
        files = {path: _open(path, stack) for path in weight_files(folder)}
        found = _survey(folder, files)
        check(folder, config, found)
        names = [name for name in expected_shapes(config) if name in found]
        weights: dict[str, torch.Tensor] = {}
        for done, name in enumerate(names, start=1):
            tensor: torch.Tensor = files[found[name].file].get_tensor(name)
            weights[name] = tensor.to(device=device, dtype=dtype)
            if progress is not None:
                progress(done, len(names))
    if config.tie_word_embeddings:
        _tie(weights)
    return weights


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint; a shard in the index but not on disk is an error."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        others = sorted(p.name for p in folder.glob("*.bin")) if folder.is_dir() else []
        hint = f"; {others[0]} is not read, convert it to safetensors" if others else ""
        raise ModelError(f"no weights in {folder}: expected {SINGLE} or {INDEX}{hint}")
    names = sorted(set(_weight_map(folder).values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{folder} lacks {len(missing)} of {len(names)} weight files: {_list(missing)}")
    return [folder / name for name in names]


def check(folder: Path, config: ModelConfig, found: dict[str, Found]) -> None:
    """Raise unless the files hold exactly this architecture."""
    expected = expected_shapes(config)
    missing = [name for name in expected if name not in found]
    if config.tie_word_embeddings:  # either of the two can stand for both
        spare = HEAD if EMBED in found else EMBED
        missing = [name for name in missing if name != spare]
    if missing:
        note = " (the config says the head is not tied to the embedding)" if missing == [HEAD] else ""
        raise ModelError(f"weights in {folder} lack {len(missing)} tensors: {_list(missing)}{note}")
    unexpected = [name for name in found if name not in expected]
    if unexpected:
        raise ModelError(f"weights in {folder} hold {len(unexpected)} unknown tensors: {_list(unexpected)}")
    for name, (file, shape, dtype) in found.items():
        if shape != expected[name]:
            raise ModelError(f"{file.name}: {name} has shape {shape}, the config needs {expected[name]}")
        if dtype not in FLOATS:
            raise ModelError(f"{file.name}: {name} is {dtype}; supported: {', '.join(FLOATS)}")


def _survey(folder: Path, files: dict[Path, Any]) -> dict[str, Found]:
    """Name -> where and what, from the file headers alone."""
    found: dict[str, Found] = {}
    for path, handle in files.items():
        for name in handle.keys():  # noqa: SIM118  a safe_open handle is not a mapping
            if ROTARY_BUFFER.search(name):
                continue
            if name in found:
                raise ModelError(f"{name} is in both {found[name].file.name} and {path.name}")
            part = handle.get_slice(name)
            found[name] = Found(path, tuple(part.get_shape()), str(part.get_dtype()))
    if SINGLE not in {path.name for path in files}:
        stale = [name for name in _weight_map(folder) if name not in found and not ROTARY_BUFFER.search(name)]
        if stale:
            raise ModelError(f"{folder / INDEX} names {len(stale)} tensors no file holds: {_list(stale)}")
    return found


def _weight_map(folder: Path) -> dict[str, str]:
    mapping = read_json(folder / INDEX).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise ModelError(f"{folder / INDEX} has no weight_map")
    for name in mapping.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{folder / INDEX} names {name!r}, which is not a file in the same folder")
    return mapping


def _open(path: Path, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged or not a safetensors file: {error}") from error


def _tie(weights: dict[str, torch.Tensor]) -> None:
    if EMBED not in weights:
        weights[EMBED] = weights[HEAD]
    elif HEAD not in weights or torch.equal(weights[HEAD], weights[EMBED]):
        weights[HEAD] = weights[EMBED]


def _list(names: list[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
