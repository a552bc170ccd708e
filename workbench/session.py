"""From what a person asked for to an engine with its requests: the one way in for screen and headless runs.

Invariant: what can be checked without a model (knobs, workload rows) is checked by `check` before anything is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import WorkbenchError
from engine.host import Fresh
from engine.knobs import KNOBS, check_value
from traces.workload import Workload

if TYPE_CHECKING:
    from engine.clock import Clock
    from engine.engine import Engine
    from engine.host import EngineInfo
    from engine.request import Request
    from engine.tokenizer import Tokenizer
    from workbench.model.session import Session

HEAD_START = 0.2
"""Seconds between loading and the start of the workload, for the screen to be there."""
MOST_REPEATS = 10_000
Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`; total 0 where it is unknown."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    model: str = "default"
    knobs: dict[str, Any] = field(default_factory=dict)
    """Only those a person gave."""
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    workload: Path | None = None
    """None: the built-in one."""
    no_workload: bool = False
    repeat: int = 1
    skip_bad: bool = False


class Loaded(NamedTuple):
    engine: Engine
    info: EngineInfo
    tokenizer: Tokenizer
    requests: list[Request]
    """`arrival` counts from the start of the run: see `start_at`."""
    notes: tuple[str, ...]


def check(options: RunOptions) -> Workload | None:
    """The workload to run. Raises WorkbenchError for whatever can be seen to be wrong before a model is there."""
    for name, value in options.knobs.items():
        check_value(name, value)
    if options.threads is not None and options.threads < 1:
        raise WorkbenchError(f"--threads: {options.threads} is below 1")
    if not 1 <= options.repeat <= MOST_REPEATS:
        raise WorkbenchError(f"--repeat: {options.repeat} is out of range, allowed: 1..{MOST_REPEATS}")
    if options.no_workload:
        if options.workload is not None:
            raise WorkbenchError("--no-workload and --workload contradict each other; give one of them")
        return None
    if options.workload is None:
        from traces.builtin import builtin_workload

        workload = builtin_workload()
    else:
        from traces.readers import read_workload
        from traces.rows import ReadOptions

        workload = read_workload(options.workload, ReadOptions(strict=not options.skip_bad))
    return workload.repeated(options.repeat)


def load(options: RunOptions, workload: Workload | None, progress: Progress, clock: Clock | None = None) -> Loaded:
    """Model, engine and requests. Slow; `progress` is told what is going on."""
    from engine.build import build_engine
    from traces.workload import to_requests
    from workbench.model_store import resolve

    source = resolve(options.model, progress)
    built = build_engine(
        source.path,
        options.knobs,
        model_name=source.name,
        dtype=options.dtype,
        device=options.device,
        threads=options.threads,
        seed=options.seed,
        clock=clock,
        progress=progress,
    )
    requests: list[Request] = []
    notes: list[str] = []
    if workload is not None:
        progress("reading the workload", 0, 0)
        skipped: list[str] | None = [] if options.skip_bad else None
        requests = to_requests(workload, built.tokenizer, built.info.vocab_size, options.seed, skipped=skipped)
        notes += _cut_outputs(requests, built.info.config.model_len)
        notes += [*workload.skipped, *workload.notes, *(f"skipped: {problem}" for problem in skipped or ())]
    return Loaded(built.engine, built.info, built.tokenizer, requests, (*built.info.notes, *notes))


def _cut_outputs(requests: list[Request], model_len: int) -> list[str]:
    """Says which requests that ask for a fixed number of tokens cannot get them all."""
    cut = [
        request
        for request in requests
        if request.params.ignore_eos
        and request.num_prompt < model_len < request.num_prompt + (request.params.max_tokens or 0)
    ]
    if not cut:
        return []
    return [f"{len(cut)} requests get fewer tokens than asked: max_model_len is {model_len} (first: {cut[0].id!r})"]


def build_session(options: RunOptions, workload: Workload | None, progress: Progress) -> Session:
    """The same, held by its own thread, for the screen. The thread is not started yet."""
    from engine.loop import EngineThread
    from workbench.model.session import Session

    loaded = load(options, workload, progress)
    for note in loaded.notes:  # under a screen they are events: nobody reads what is printed
        loaded.engine.notice(note)
    host = EngineThread(loaded.engine, loaded.info, Rebuilding(options, workload, loaded))
    # The model's objects live as long as the process: a collection that walks them stops both threads for nothing.
    gc.collect()
    gc.freeze()
    start_at(loaded.requests, host.now() + HEAD_START)
    return Session(
        host=host,
        encode=functools.partial(encode_typed, loaded.engine),
        workload_requests=tuple(loaded.requests),
    )


def encode_typed(engine: Engine, text: str) -> list[int]:
    """What a person types into the running engine: a question, so it goes through the chat template.

    Asks the engine for its tokenizer each time: a rebuild may have brought another one.
    """
    return engine.tokenizer.encode_chat([{"role": "user", "content": text}])


class Rebuilding:
    """Builds another engine for a running session (see `engine.host.Rebuilder`)."""

    def __init__(self, options: RunOptions, workload: Workload | None, loaded: Loaded) -> None:
        self._options = options
        self._clock = loaded.engine.clock
        self._specs = {spec.id: spec for spec in workload.specs} if workload is not None else {}

    def __call__(self, changes: dict[str, Any]) -> Fresh:
        knobs = {name: value for name, value in changes.items() if name in KNOBS}
        others = {name: value for name, value in changes.items() if name not in KNOBS}
        unknown = others.keys() - {"model", "dtype", "device", "threads"}
        if unknown:
            raise WorkbenchError(f"{', '.join(sorted(unknown))}: no such setting")
        old = self._options
        options = dataclasses.replace(old, knobs={**old.knobs, **knobs}, **others)
        loaded = load(options, None, lambda stage, done, total: None, self._clock)
        self._options = options
        return Fresh(loaded.engine, loaded.info, None if options.model == old.model else self._encoder(loaded))

    def _encoder(self, loaded: Loaded) -> Callable[[Request], list[int] | None]:
        def encode(request: Request) -> list[int] | None:
            spec = self._specs.get(request.id)
            if spec is not None and spec.prompt_len is None and spec.prompt_ids is None:
                from traces.workload import to_requests

                row = Workload(request.id, (dataclasses.replace(spec, where=""),))
                return to_requests(row, loaded.tokenizer, loaded.info.vocab_size)[0].token_ids
            if spec is None and request.prompt_text is not None:
                return encode_typed(loaded.engine, request.prompt_text)
            return None

        return encode


def start_at(requests: list[Request], now: float) -> None:
    """Move planned arrivals from "seconds after the start" to the engine's clock."""
    for request in requests:
        request.arrival = now + (request.arrival or 0.0)
