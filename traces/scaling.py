"""A trace made to fit a run: other times, other lengths, fewer rows. Each change is counted and told.

Order: the window (--from, --to), --limit, --clients, --synth-prefix, --spread, --speed, --len-scale. So --from, --to
and --spread are in the trace's own seconds, counted from its first request.

Invariant: closed-loop chains (rows tied by `after`) stay whole: they are in a window if their first row is, and a limit
takes whole ones. Nothing is drawn at random: invented clients follow from the seed and a row's session or id.
Omission: texts and given ids keep their length under --len-scale; that is told.
"""

from __future__ import annotations

import dataclasses
import hashlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, groupby

from engine.errors import WorkbenchError
from traces.prompts import spans
from traces.workload import RequestSpec, Workload, bridged

SHARED_BLOCK = 16
"""Tokens of an invented prefix id: requests of different lengths share whole ones."""
MOST_CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a person asked for; the defaults change nothing."""

    speed: float = 1.0
    """Above 1: faster."""
    start: float | None = None
    """Seconds after the first request; rows before are left out."""
    end: float | None = None
    """Rows at this time or later are left out."""
    limit: int | None = None
    len_scale: float = 1.0
    """On prompt and output lengths, prefix lengths included; at least 1 token is left."""
    clients: int | None = None
    """Give the rows to this many invented clients."""
    client_skew: float = 0.0
    """Exponent of a Zipf distribution over them; 0: all alike."""
    spread: float | None = None
    """Seconds within which requests of equal stamps are spread evenly: the trace's clock ticked that coarsely."""
    synth_prefix: int | None = None
    """Tokens that all prompts of a client begin with, where the trace has no prefix ids."""
    seed: int = 0

    def apply(self, workload: Workload) -> tuple[Workload, list[str]]:
        """The changed workload, and a line for people for each change. WorkbenchError when no row is left."""
        told: list[str] = []
        specs = list(workload.specs)
        for change in (
            self._window,
            self._first,
            self._invent,
            self._share,
            self._spread_out,
            self._hurry,
            self._scale,
        ):
            before = len(specs)
            specs, what = change(specs)
            told += what
            if before and not specs:
                raise WorkbenchError(f"{workload.name}: no request is left: {what[-1]}")
        period = workload.period
        if period is not None:
            period = None if self.start is not None or self.end is not None else period / self.speed
        return dataclasses.replace(workload, specs=tuple(specs), period=period), told

    # ---- which rows -------------------------------------------------------------------------------

    def _window(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.start is None and self.end is None:
            return specs, []
        first = min((spec.arrival for spec in specs), default=0.0)
        last = max((spec.arrival for spec in specs), default=0.0)
        low = first + (self.start or 0.0)
        high = float("inf") if self.end is None else first + self.end
        times = [chain[0].arrival for chain in _chains(specs)]
        kept = [spec for spec, time in zip(specs, _times(specs, times), strict=True) if low <= time < high]
        what = [window_line(self.start, self.end, len(specs) - len(kept), len(specs), last - first)]
        kept = bridged(specs, kept)
        zero = min((spec.arrival for spec in kept if spec.after is None), default=0.0)
        return [dataclasses.replace(spec, arrival=max(0.0, spec.arrival - zero)) for spec in kept], what

    def _first(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.limit is None or len(specs) <= self.limit:
            return specs, []
        taken: set[str] = set()
        for chain in _chains(specs):
            room = self.limit - len(taken)
            if len(chain) > room and taken:
                break
            taken.update(spec.id for spec in chain[:room])
        kept = [spec for spec in specs if spec.id in taken]
        whole = " (closed-loop sessions stay whole)" if len(kept) < self.limit else ""
        what = [f"--limit {self.limit}: the first {len(kept):,} of {len(specs):,} rows{whole}"]
        return bridged(specs, kept), what

    # ---- who asks, with what in common ------------------------------------------------------------

    def _invent(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.clients is None:
            return specs, []
        bounds = list(accumulate((rank + 1) ** -self.client_skew for rank in range(self.clients)))
        digits = len(str(self.clients))
        own = {spec.client for spec in specs} - {"default"}

        def client(spec: RequestSpec) -> str:
            key = hashlib.blake2b(f"{self.seed}\0client\0{spec.session or spec.id}".encode(), digest_size=8).digest()
            place = int.from_bytes(key, "big") / (1 << 64) * bounds[-1]
            return f"invented-{min(bisect_right(bounds, place), self.clients - 1) + 1:0{digits}}"  # type: ignore[operator]

        skew = f", Zipf {self.client_skew:g}" if self.client_skew else ""
        instead = f", in place of the trace's own {len(own):,}" if own else ""
        what = [f"--clients: {len(specs):,} rows given to {self.clients} invented clients{skew}{instead}"]
        return [dataclasses.replace(spec, client=client(spec)) for spec in specs], what

    def _share(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.synth_prefix is None:
            return specs, []
        length, changed = self.synth_prefix, 0
        blocks = -(-length // SHARED_BLOCK)
        out = []
        for spec in specs:
            if spec.prompt_len is not None and not spec.prefix_ids:
                changed += 1
                key = hashlib.blake2b(f"synth\0{spec.client}".encode(), digest_size=6).digest()
                first = int.from_bytes(key, "big") << 16
                lens = (*(SHARED_BLOCK,) * (blocks - 1), length - SHARED_BLOCK * (blocks - 1))
                spec = dataclasses.replace(spec, prefix_ids=tuple(range(first, first + blocks)), prefix_lens=lens)
            out.append(spec)
        return out, [
            f"--synth-prefix: {changed:,} prompts begin with {length:,} invented tokens of their client; prefix hits "
            "are not the trace's"
        ]

    # ---- when -------------------------------------------------------------------------------------

    def _spread_out(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.spread is None:
            return specs, []
        order = sorted((at for at, spec in enumerate(specs) if spec.after is None), key=lambda at: specs[at].arrival)
        stamps = [(time, list(places)) for time, places in groupby(order, key=lambda at: specs[at].arrival)]
        out, moved = list(specs), 0
        for index, (time, places) in enumerate(stamps):
            # Ticks may come a little early: nobody moves past the next stamp.
            room = min(self.spread, stamps[index + 1][0] - time) if index + 1 < len(stamps) else self.spread
            for rank, at in enumerate(places[1:], 1):
                moved += 1
                out[at] = dataclasses.replace(out[at], arrival=time + room * rank / len(places))
        return out, [f"--spread: {moved:,} rows of {len(stamps):,} stamps moved within {self.spread:g} s"]

    def _hurry(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.speed == 1.0:
            return specs, []
        span = max((spec.arrival for spec in specs), default=0.0)
        out = [
            dataclasses.replace(spec, arrival=spec.arrival / self.speed, delay=spec.delay / self.speed)
            for spec in specs
        ]
        return out, [f"--speed {self.speed:g}: arrivals over {span:.4g} s come over {span / self.speed:.4g} s"]

    # ---- how long ---------------------------------------------------------------------------------

    def _scale(self, specs: list[RequestSpec]) -> tuple[list[RequestSpec], list[str]]:
        if self.len_scale == 1.0:
            return specs, []
        out = [_shorter(spec, self.len_scale) for spec in specs]
        changed = sum(a is not b for a, b in zip(specs, out, strict=True))
        texts = sum(spec.prompt_len is None for spec in specs)
        what = [f"--len-scale {self.len_scale:g}: lengths of {changed:,} rows changed"]
        if texts:
            what.append(f"--len-scale: {texts:,} prompts are text or ids and keep their length")
        return out, what


def window_line(start: float | None, end: float | None, out: int, rows: int, span: float) -> str:
    """What --from and --to did, for people."""
    asked = " ".join(f"{name} {value:g}" for name, value in (("--from", start), ("--to", end)) if value is not None)
    return f"{asked}: {out:,} of {rows:,} rows left out (the trace spans {span:g} s)"


def _shorter(spec: RequestSpec, scale: float) -> RequestSpec:
    def scaled(length: int) -> int:
        return max(1, round(length * scale))

    changes: dict[str, object] = {}
    for name in ("output_len", "expected_output"):
        if (value := getattr(spec, name)) is not None:
            changes[name] = scaled(value)
    if spec.prompt_len is not None:
        used = list(spans(spec))
        lens = spec.prefix_lens
        whole = [lens[0] if len(lens) == 1 else lens[at] for at in range(len(used))]
        # A whole content stays whole and is as long wherever it appears, or nothing would be shared any more.
        parts = [
            scaled(size) if count == size else min(scaled(size), max(1, round(scaled(size) * count / size)))
            for (_, count), size in zip(used, whole, strict=True)
        ]
        tail = spec.prompt_len - sum(count for _, count in used)
        changes["prompt_len"] = sum(parts) + (scaled(tail) if tail else 0)
        if used:
            changes["prefix_ids"] = spec.prefix_ids[: len(used)]
            changes["prefix_lens"] = tuple(map(scaled, whole)) if len(set(whole)) > 1 else (scaled(whole[0]),)
    return dataclasses.replace(spec, **changes) if changes else spec  # type: ignore[arg-type]


def _chains(specs: list[RequestSpec]) -> list[list[RequestSpec]]:
    """Rows tied by `after`, each chain in file order, chains in the order of their first rows; most have one row."""
    root = _roots(specs)
    chains: dict[str, list[RequestSpec]] = {}
    for spec in specs:
        chains.setdefault(root(spec.id), []).append(spec)
    return list(chains.values())


def _times(specs: list[RequestSpec], firsts: list[float]) -> list[float]:
    """For each row, when its chain begins. firsts: of each chain, as `_chains` orders them."""
    root = _roots(specs)
    known: dict[str, float] = {}
    begun = iter(firsts)
    return [known[name] if (name := root(spec.id)) in known else known.setdefault(name, next(begun)) for spec in specs]


def _roots(specs: list[RequestSpec]) -> Callable[[str], str]:
    """A function from a row's id to that of the row its chain begins with. Circles count as one chain."""
    after = {spec.id: spec.after for spec in specs}
    known: dict[str, str] = {}

    def root(id: str) -> str:
        path: list[str] = []
        seen: set[str] = set()
        at = id
        while at not in known and at not in seen:
            path.append(at)
            seen.add(at)
            leader = after.get(at)
            if leader is None or leader not in after:
                known[at] = at
            else:
                at = leader
        found = known[at] if at in known else min(seen)
        for passed in path:
            known[passed] = found
        return found

    return root


def zipf(text: str) -> float:
    """The exponent of `zipf:1.1`. WorkbenchError when it is not one."""
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if kind != "zipf" or not 0 <= value <= 10:
        raise WorkbenchError(f"--client-skew: {text!r} is not zipf:A with A from 0 to 10, such as zipf:1.1")
    return value


def duration(name: str, text: str) -> float:
    """Seconds of `3s`, `500ms`, `2m`, `1h` or `3`. WorkbenchError, naming the option, when it is no such time."""
    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * factor if unit else float(text)
            except ValueError:
                break
            if 0 <= value < float("inf"):
                return value
            break
    raise WorkbenchError(f"{name}: {text!r} is not a time such as 3s, 500ms or 2m")
