"""Write a GGUF file out as a Hugging Face model folder.

What: `write_folder` fills an existing empty folder with config.json, generation_config.json,
model.safetensors, tokenizer.json, tokenizer_config.json and (if the file has one) chat_template.jinja.
Invariant: one tensor is in memory at a time, so a file larger than memory converts; every file is
flushed to disk before the function returns, so that renaming the folder afterwards is all or nothing.
Omission: no sharding: one model.safetensors whatever its size.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.models.gguf_file import GgufFile

SAFETENSORS_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_folder(source: GgufFile, folder: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """`progress(done, total)` counts bytes of weights."""
    files = source.tokenizer_files()
    write_text(folder / "tokenizer.json", files.tokenizer_json)
    write_json(folder / "tokenizer_config.json", files.tokenizer_config)
    if files.chat_template is not None:
        write_text(folder / "chat_template.jinja", files.chat_template)
    write_json(folder / "config.json", source.config)
    write_json(folder / "generation_config.json", source.generation_config())
    _write_weights(source, folder / "model.safetensors", progress)


def write_json(path: Path, value: dict[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        _flush(file)


def _write_weights(source: GgufFile, path: Path, progress: Callable[[int, int], None] | None) -> None:
    """The safetensors layout: header length (8 bytes, little end first), JSON header, then the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in source.shapes.items():
        start, end = end, end + math.prod(shape) * source.dtype.itemsize
        header[name] = {
            "dtype": SAFETENSORS_NAMES[source.dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data starts aligned
    done = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in source.tensors():
            data = tensor.contiguous().flatten().view(torch.uint8).numpy()
            file.write(data.data)
            done += data.nbytes
            if progress is not None:
                progress(done, end)
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
