"""What goes in: the requests of a run, before a tokenizer or an engine has seen them.

`RequestSpec` is one row, `Workload` all of them in file order, `to_requests` turns them into the engine's requests.
Invariant: the same workload, seed and tokenizer give the same requests in every process: random prompts are drawn
from a generator keyed by (seed, id), so neither order nor neighbours matter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.errors import WorkbenchError
from engine.request import Request
from engine.sampling_params import SamplingParams
from traces.errors import WorkloadError

if TYPE_CHECKING:
    from traces.readers.origin import Origin
    from traces.rows import Report


class TextCodec(Protocol):
    """What a workload needs of a tokenizer."""

    @property
    def eos_ids(self) -> Collection[int]: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...


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
        """This workload `rounds` times in a row. Ids of later rounds get a suffix: `q1`, `q1~2`, `q1~3`."""
        if rounds <= 1 or not self.specs:
            return self
        period = self.period if self.period is not None else max(spec.arrival for spec in self.specs) + 1.0
        again = tuple(
            dataclasses.replace(spec, id=f"{spec.id}~{turn + 1}", arrival=spec.arrival + turn * period)
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
    """The engine's requests, in the workload's order, `arrival` still counted from the start of the run.

    chat: whether `messages` rows may be used (the model can talk); they are refused otherwise.
    skipped: where to put what is wrong with rows this model cannot take, instead of raising.
    Raises WorkloadError naming every such row.
    """
    allowed: list[int] | None = None
    texts: dict[object, list[int]] = {}
    requests: list[Request] = []
    problems: list[str] = []
    for spec in workload.specs:
        try:
            if spec.prompt_len is not None and allowed is None:
                allowed = _plain_ids(tokenizer, vocab_size)
            ids = _prompt_ids(spec, tokenizer, vocab_size, seed, chat, allowed or [], texts)
            requests.append(
                Request(
                    spec.id,
                    ids,
                    spec.sampling(),
                    client=spec.client,
                    priority=spec.priority,
                    arrival=spec.arrival,
                    deadline=spec.deadline,
                    expected_output=spec.output_len if spec.expected_output is None else spec.expected_output,
                    prompt_text=_shown_text(spec),
                )
            )
        except WorkbenchError as error:
            problems.append(f"{spec.where or workload.name}: request {spec.id!r}: {error}")
    if skipped is not None:
        skipped.extend(problems)
    elif problems:
        raise WorkloadError(workload.name, problems)
    return requests


def _prompt_ids(
    spec: RequestSpec,
    tokenizer: TextCodec,
    vocab_size: int,
    seed: int,
    chat: bool,
    allowed: list[int],
    texts: dict[object, list[int]],
) -> list[int]:
    if spec.prompt_ids is not None:
        worst = max(spec.prompt_ids)
        if worst >= vocab_size:
            raise WorkbenchError(f"prompt_ids holds {worst}, this model's ids are 0..{vocab_size - 1}")
        return list(spec.prompt_ids)
    if spec.prompt_len is not None:
        return _generator(seed, spec.id).choices(allowed, k=spec.prompt_len)
    text: object = spec.prompt if spec.messages is None else spec.messages
    ids = texts.get(text)
    if ids is None:
        if spec.messages is None:
            ids = tokenizer.encode(spec.prompt or "")
        elif chat:
            ids = tokenizer.encode_chat([{"role": role, "content": content} for role, content in spec.messages])
        else:
            raise WorkbenchError("messages need a model with a chat template; give a prompt instead")
        texts[text] = ids
    if not ids:
        raise WorkbenchError("the prompt is empty once encoded")
    return list(ids)


def _generator(seed: int, id: str) -> random.Random:
    key = hashlib.blake2b(f"{seed}\0{id}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(key, "big"))


def _plain_ids(tokenizer: TextCodec, vocab_size: int) -> list[int]:
    """Ids that are ordinary text: a random prompt must not contain an end mark or a chat control token."""
    special = set(tokenizer.eos_ids) | set(getattr(tokenizer, "special_ids", ()))
    return [id for id in range(vocab_size) if id not in special]


def _shown_text(spec: RequestSpec) -> str | None:
    """The prompt as a person wrote it; of a chat, the last message."""
    return spec.messages[-1][1] if spec.messages else spec.prompt
