"""Line 1 of a recording: what was recorded, by which rules, and what it takes to run it again."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from engine.host import EngineInfo
from engine.knobs import KNOBS
from traces.errors import RecordingError

FORMAT = "workbench.recording"
VERSION = 1
MIN_READER = 1
"""The oldest reader that understands what this version writes."""


@dataclass(frozen=True, slots=True)
class Header:
    info: EngineInfo
    """Of the engine at its start; `info.config` holds the knobs as they were then."""
    source: str = ""
    """What was asked for as the model (a name, a folder), to build the engine again; `info.model` where it is empty."""
    seed: int = 0
    clock: str = "real"
    """`virtual`: times are modelled, not measured."""
    tokens: bool = True
    """Prompts, tokens and texts are in it."""
    first_seq: int = 0
    """Number of its first record. Not 0: it was begun in the middle of a run, so it can be played and not run again."""
    wall_ns: int = 0
    """Unix time of the engine clock's zero."""
    trace: dict[str, Any] | None = None
    """What was replayed: path, sha256, format, read, kept, dropped."""
    key_every: int = 128
    """Records between two keyframes at most."""
    app: str = ""
    """Version of the program that wrote it."""
    host: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        info: EngineInfo,
        *,
        now: float,
        source: str = "",
        seed: int = 0,
        clock: str = "real",
        trace: dict[str, Any] | None = None,
    ) -> Header:
        """Of an engine on this machine. now: what the engine's clock says at this moment."""
        return cls(
            info=info,
            source=source,
            seed=seed,
            clock=clock,
            wall_ns=time.time_ns() - round(now * 1e9),
            trace=trace,
            app=_app_version(),
            host={"cpu": os.cpu_count() or 0, "threads": info.threads},
        )

    @property
    def exact(self) -> bool:
        """The model repeats its tokens whatever else is in the batch: another run must give the same ones."""
        return self.info.dtype == "float32" and self.info.device == "cpu"

    @property
    def complete(self) -> bool:
        """It begins with the run, so that it can be run again."""
        return self.first_seq == 0 and self.tokens

    def line(self) -> dict[str, Any]:
        info, config = self.info, self.info.config
        return {
            "k": "hdr",
            "fmt": FORMAT,
            "v": VERSION,
            "min_reader": MIN_READER,
            "unit": "ns",
            "wall_ns": self.wall_ns,
            "from": self.first_seq,
            "tokens": self.tokens,
            "key_every": self.key_every,
            "clock": self.clock,
            "seed": self.seed,
            "app": self.app,
            "model": {
                "name": info.model, "dtype": info.dtype, "device": info.device, "params": info.parameters,
                "vocab": info.vocab_size, "kv_bytes": info.kv_bytes, "source": self.source,
            },
            "knobs": config.values(),
            "allocated": config.allocated_blocks,
            "config_notes": list(config.notes),
            "notes": list(info.notes),
            "threads": info.threads,
            "host": self.host,
            "trace": self.trace,
        }  # fmt: skip


def read_header(line: dict[str, Any], name: str) -> Header:
    """RecordingError for a file of another kind, or of a version this one cannot read. name: the file's."""
    if line.get("k") != "hdr" or line.get("fmt") != FORMAT:
        raise RecordingError(f"{name} is no recording: its first line is no header of {FORMAT}")
    version, needed = line.get("v"), line.get("min_reader")
    if not isinstance(version, int) or not isinstance(needed, int) or version < 1:
        raise RecordingError(f"{name}: its header tells no version; this program reads version {VERSION}")
    if needed > VERSION:
        raise RecordingError(
            f"{name} is a recording of version {version}, this program reads up to version {VERSION}; "
            "open it with a newer one"
        )
    try:
        model = line["model"]
        known = {name: value for name, value in line["knobs"].items() if name in KNOBS}
        config = EngineConfig(**known, allocated_blocks=line["allocated"], notes=tuple(line.get("config_notes", ())))
        info = EngineInfo(
            model["name"],
            model["device"],
            model["dtype"],
            line["threads"],
            config,
            model["vocab"],
            model["kv_bytes"],
            model["params"],
            tuple(line.get("notes", ())),
        )
        return Header(
            info=info,
            source=model.get("source", ""),
            seed=line["seed"],
            clock=line["clock"],
            tokens=line["tokens"],
            first_seq=line["from"],
            wall_ns=line["wall_ns"],
            trace=line.get("trace"),
            key_every=line["key_every"],
            app=line.get("app", ""),
            host=line.get("host", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{name}: its header is damaged: {type(error).__name__} {error}") from None


def begun_at(header: Header, seq: int, *, tokens: bool) -> Header:
    return dataclasses.replace(header, first_seq=seq, tokens=tokens)


def _app_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("serving-workbench")
    except PackageNotFoundError:
        return ""
