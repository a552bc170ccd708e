"""What goes in: the requests of a run, before a tokenizer or an engine has seen them.

`RequestSpec` is one row, `Workload` all of them in file order, `to_requests` turns them into the engine's requests.
Invariant: the same workload, seed and tokenizer give the same requests in every process; neither order nor neighbours
matter (see prompts.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import WorkbenchError
from engine.request import Request
from engine.sampling_params import SamplingParams
from traces.errors import WorkloadError
from traces.fitting import Fitting
from traces.prompts import PromptMaker, TextCodec

if TYPE_CHECKING:
    from traces.readers.origin import Origin
    from traces.rows import Report

__all__ = ["RequestSpec", "TextCodec", "Workload", "bridged", "late_requests", "to_requests"]


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request of a workload. Exactly one of the four prompt forms is given."""

    id: str
    arrival: float = 0.0
    """Seconds after the start of the run."""
    prompt_ids: tuple[int, ...] | None = None
    prompt: str | None = None
    """Raw text: encoded as it is, no chat template."""
    messages: tuple[tuple[str, str], ...] | None = None
    """(role, content): goes through the model's chat template."""
    prompt_len: int | None = None
    """This many tokens: those of `prefix_ids` first, the rest random and its own."""
    prefix_ids: tuple[int, ...] = ()
    """What the prompt begins with, as content ids: the same id stands for the same tokens in every request."""
    prefix_lens: tuple[int, ...] = ()
    """Tokens of each prefix id; one number stands for all of them. The last one is cut at `prompt_len`."""
    output_len: int | None = None
    """Exactly this many output tokens: end-of-sequence ids do not end the request."""
    max_tokens: int | None = None
    expected_output: int | None = None
    """Output tokens an oracle predicts; None: `output_len`, where that is given. It may be wrong on purpose."""
    client: str = "default"
    priority: int = 0
    deadline: float | None = None
    """Seconds after arrival by which the first token should be there, above 0."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    session: str | None = None
    """Conversation or agent it belongs to."""
    turn: int | None = None
    after: str | None = None
    """Closed loop: id of the request that has to end first."""
    delay: float = 0.0
    """Seconds between that end and this arrival (thinking, tools)."""
    failed: bool = False
    """The source says that this request failed there: it is known, and not sent."""
    where: str = ""
    """`FILE:LINE` of the row, for messages."""

    def sampling(self) -> SamplingParams:
        """Raises RequestError when a value is out of its range."""
        exact = self.output_len is not None
        return SamplingParams(
            max_tokens=self.output_len if exact else self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            ignore_eos=exact or self.ignore_eos,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    specs: tuple[RequestSpec, ...]
    skipped: tuple[str, ...] = ()
    """Bad rows that were left out because the person asked for that, one problem each."""
    notes: tuple[str, ...] = ()
    """What a person should know before reading the results."""
    period: float | None = None
    """Seconds after which `repeated` starts the next round; None: one second after the last arrival."""
    origin: Origin | None = None
    """Of a file: its format, and how its times were understood."""
    report: Report | None = None
    """Of a file: what became of every row."""

    def repeated(self, rounds: int) -> Workload:
        """This workload `rounds` times in a row. Ids and sessions of later rounds get a suffix: `q1`, `q1~2`."""
        if rounds <= 1 or not self.specs:
            return self
        period = self.period if self.period is not None else max(spec.arrival for spec in self.specs) + 1.0
        again = tuple(
            dataclasses.replace(
                spec,
                id=f"{spec.id}~{turn + 1}",
                arrival=spec.arrival + turn * period,
                session=None if spec.session is None else f"{spec.session}~{turn + 1}",
                after=None if spec.after is None else f"{spec.after}~{turn + 1}",
            )
            for turn in range(1, rounds)
            for spec in self.specs
        )
        return dataclasses.replace(self, specs=self.specs + again)


def to_requests(
    workload: Workload,
    tokenizer: TextCodec,
    vocab_size: int,
    seed: int = 0,
    chat: bool = True,
    *,
    skipped: list[str] | None = None,
) -> list[Request]:
    """The engine's requests with their prompts, in the workload's order, `arrival` counted from the start of the run.

    chat: whether `messages` rows may be used (the model can talk); they are refused otherwise.
    skipped: where to put what is wrong with rows this model cannot take, instead of raising.
    Raises WorkloadError naming every such row. Rows that failed at their source are left out.
    """
    requests = late_requests(workload, PromptMaker(tokenizer, vocab_size, seed, chat), skipped=skipped)
    for request in requests:
        request.fill()
    return requests


def late_requests(
    workload: Workload, maker: PromptMaker, *, fitting: Fitting | None = None, skipped: list[str] | None = None
) -> list[Request]:
    """The same, with prompts that are made when their requests arrive: a long trace needs little memory.

    fitting: what to do with those that are too long; it is told each of them. Otherwise as `to_requests`.
    """
    requests: list[Request] = []
    problems: list[str] = []
    kept = [spec for spec in workload.specs if not spec.failed]
    for spec in kept if len(kept) == len(workload.specs) else bridged(workload.specs, kept):
        try:
            prompt, params = maker.prompt(spec), spec.sampling()
            if fitting is not None:
                fitted = fitting.fit(spec, prompt, params)
                if fitted is None:
                    continue
                prompt, params = fitted
            expected = params.max_tokens if spec.output_len is not None else None
            requests.append(
                Request(
                    spec.id,
                    [],
                    params,
                    client=spec.client,
                    priority=spec.priority,
                    arrival=spec.arrival,
                    deadline=spec.deadline,
                    expected_output=expected if spec.expected_output is None else spec.expected_output,
                    prompt_text=_shown_text(spec),
                    session=spec.session,
                    after=spec.after,
                    delay=spec.delay,
                    late=prompt,
                )
            )
        except WorkbenchError as error:
            problems.append(f"{spec.where or workload.name}: request {spec.id!r}: {error}")
    if skipped is not None:
        skipped.extend(problems)
    elif problems:
        raise WorkloadError(workload.name, problems)
    if len(requests) < len(kept):
        _close_up(workload.specs, requests)
    return requests


def bridged(specs: Iterable[RequestSpec], kept: Iterable[RequestSpec]) -> list[RequestSpec]:
    """`kept` when the others are gone: who came after one of those comes after its leader, with both delays.

    Without a leader that is left it comes by itself, at its own time or that of the first in the chain.
    """
    kept = list(kept)
    ids = {spec.id for spec in kept}
    if all(spec.after is None or spec.after in ids for spec in kept):
        return kept
    gone = {spec.id: spec for spec in specs if spec.id not in ids}
    return [spec if spec.after is None or spec.after in ids else _led_anew(spec, ids, gone) for spec in kept]


def _led_anew(spec: RequestSpec, ids: set[str], gone: dict[str, RequestSpec]) -> RequestSpec:
    after, delay, arrival = spec.after, spec.delay, spec.arrival
    passed: set[str] = set()
    while after is not None and after not in ids:
        leader = gone.get(after)
        if leader is None or after in passed:
            after = None
        else:
            passed.add(after)
            after, delay, arrival = leader.after, delay + leader.delay, max(arrival, leader.arrival)
    if after is None:
        return dataclasses.replace(spec, after=None, delay=0.0, arrival=arrival)
    return dataclasses.replace(spec, after=after, delay=delay)


def _close_up(specs: Iterable[RequestSpec], requests: list[Request]) -> None:
    """Some rows gave no request: nobody may wait for those."""
    ids = {request.id for request in requests}
    gone: dict[str, RequestSpec] | None = None
    by_id: dict[str, RequestSpec] = {}
    for request in requests:
        if request.after is None or request.after in ids:
            continue
        if gone is None:
            by_id = {spec.id: spec for spec in specs}
            gone = {id: spec for id, spec in by_id.items() if id not in ids}
        anew = _led_anew(by_id[request.id], ids, gone)
        request.after, request.delay, request.arrival = anew.after, anew.delay, anew.arrival


def _shown_text(spec: RequestSpec) -> str | None:
    """The prompt as a person wrote it; of a chat, the last message."""
    return spec.messages[-1][1] if spec.messages else spec.prompt
