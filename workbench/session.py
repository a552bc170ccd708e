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

from engine.clock import VirtualClock, whole_ns
from engine.errors import WorkbenchError
from engine.executors.timed import Costs, TimedExecutor
from engine.host import Fresh
from engine.knobs import KNOBS, check_value
from traces.workload import Workload
from workbench.model.progress import Progress as RunProgress

if TYPE_CHECKING:
    from engine.clock import Clock
    from engine.engine import Engine
    from engine.host import EngineInfo
    from engine.request import Request
    from engine.tokenizer import Tokenizer
    from traces.prompts import PromptMaker
    from traces.recording import Recorder
    from workbench.model.session import Session
    from workbench.replaying import Replay

HEAD_START = 0.2
"""Seconds between loading and the start of the workload, for the screen to be there."""
MOST_REPEATS = 10_000
SHOWN = 5
"""Rows that cannot be used which a note names."""
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
    costs: tuple[int, int] | None = None
    """Nanoseconds of an iteration and of a token, on a virtual clock; None: the real clock."""
    replay: Replay | None = None
    """How the workload came about, where it is a trace that is replayed."""
    record: Path | None = None
    """Where the run is recorded."""
    record_text: bool = True
    """Prompts, tokens and texts go into the recording too."""


class Loaded(NamedTuple):
    engine: Engine
    info: EngineInfo
    tokenizer: Tokenizer
    requests: list[Request]
    """`arrival` counts from the start of the run: see `start_at`. Prompts are made when they arrive."""
    notes: tuple[str, ...]
    maker: PromptMaker | None = None
    """Of the prompts that are still to be made."""
    trace: dict[str, Any] | None = None
    """What a recording says of the file that is run."""


def check_options(options: RunOptions) -> None:
    """Raises WorkbenchError for whatever can be seen to be wrong before a file or a model is read."""
    for name, value in options.knobs.items():
        check_value(name, value)
    if options.threads is not None and options.threads < 1:
        raise WorkbenchError(f"--threads: {options.threads} is below 1")
    if options.record is not None:
        from traces.recording.writer import check_path

        check_path(options.record)
    if not 1 <= options.repeat <= MOST_REPEATS:
        raise WorkbenchError(f"--repeat: {options.repeat} is out of range, allowed: 1..{MOST_REPEATS}")


def check(options: RunOptions) -> Workload | None:
    """The workload to run. Raises WorkbenchError for whatever can be seen to be wrong before a model is there."""
    check_options(options)
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
    from traces.fitting import Fitting
    from traces.prompts import PromptMaker
    from traces.workload import late_requests
    from workbench.model_store import resolve

    if clock is None and options.costs is not None:
        clock = VirtualClock()
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
    if options.costs is not None:
        assert isinstance(clock, VirtualClock)
        built.engine.executor = TimedExecutor(built.engine.executor, clock, Costs(*options.costs))
    requests: list[Request] = []
    notes: list[str] = []
    if options.costs is not None and workload is not None:
        step, token = options.costs
        notes.append(
            f"virtual clock: {step / 1e6:g} ms an iteration and {token / 1e3:g} µs a token, whatever they take"
        )
    maker = None
    if workload is not None:
        progress("reading the workload", 0, 0)
        skipped: list[str] | None = [] if options.skip_bad else None
        maker = PromptMaker(built.tokenizer, built.info.vocab_size, options.seed)
        replay, config = options.replay, built.info.config
        fitting = None
        if replay is not None:
            fitting = Fitting(config.model_len, max_prompt=replay.max_prompt, over=replay.over_limit)
        requests = late_requests(workload, maker, fitting=fitting, skipped=skipped)
        if fitting is None:
            notes += [*_cut_outputs(requests, config.model_len), *workload.skipped, *workload.notes]
        else:
            notes += fitting.told()
        notes += [f"skipped: {problem}" for problem in (skipped or ())[:SHOWN]]
        if skipped and len(skipped) > SHOWN:
            notes.append(f"skipped: {len(skipped) - SHOWN:,} more rows that this model cannot take")
        if not requests and workload.specs:
            raise WorkbenchError(
                f"{workload.name}: no request is left: {'; '.join(notes) or 'all failed at their source'}"
            )
    return Loaded(
        built.engine, built.info, built.tokenizer, requests, (*built.info.notes, *notes), maker, told(workload)
    )


def told(workload: Workload | None) -> dict[str, Any] | None:
    """The file of a workload, its format, and how many of its rows were kept; None when it came from no file."""
    if workload is None or workload.origin is None:
        return None
    report = workload.report
    rows = {} if report is None else {"read": report.read, "kept": report.kept, "dropped": sum(report.dropped.values())}
    return {"path": workload.name, "format": workload.origin.format, **rows}


def recorder(options: RunOptions, loaded: Loaded) -> Recorder | None:
    """Opens the file to record into, with its header; None when nobody asked for it. RecordingError as `Recorder`."""
    if options.record is None:
        return None
    from traces.recording import Header, Recorder

    header = Header.of(
        loaded.info,
        now=loaded.engine.clock.now(),
        source=options.model,
        seed=options.seed,
        clock="real" if options.costs is None else "virtual",
        trace=loaded.trace,
    )
    return Recorder(options.record, header, tokens=options.record_text)


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
    recording = recorder(options, loaded)
    if recording is not None:
        host.observe(recording)
    # The model's objects live as long as the process: a collection that walks them stops both threads for nothing.
    gc.collect()
    gc.freeze()
    start_at(loaded.requests, host.now() + HEAD_START)
    requests = tuple(loaded.requests)
    loaded.requests.clear()  # they belong to the engine from now on: each is forgotten when it has ended
    return Session(
        host=host,
        encode=functools.partial(encode_typed, loaded.engine),
        workload_requests=requests,
        progress=RunProgress(requests, virtual=options.costs is not None) if options.replay is not None else None,
        recorder=recording,
        source=options.model,
        seed=options.seed,
        virtual=options.costs is not None,
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
        self._maker = loaded.maker
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
        if options.model == old.model:
            return Fresh(loaded.engine, loaded.info, None)
        if self._maker is not None:
            self._maker.switch(loaded.tokenizer, loaded.info.vocab_size)
        return Fresh(loaded.engine, loaded.info, self._encoder(loaded))

    def _encoder(self, loaded: Loaded) -> Callable[[Request], list[int] | None]:
        def encode(request: Request) -> list[int] | None:
            spec = self._specs.get(request.id)
            if spec is not None and spec.prompt_len is None and spec.prompt_ids is None:
                assert self._maker is not None
                return self._maker.prompt(spec).ids()
            if spec is None and request.prompt_text is not None:
                return encode_typed(loaded.engine, request.prompt_text)
            return None

        return encode


def start_at(requests: list[Request], now: float) -> None:
    """Move planned arrivals from "seconds after the start" to the engine's clock."""
    for request in requests:
        request.arrival = whole_ns(now + (request.arrival or 0.0))
