"""`FittedCosts`: how long an iteration takes, learned from the iterations of a recording.

Seconds = step + seq·S + token·T + context·C + attention·A + swap·W with the `Work` of the iteration and coefficients
that are never negative. All of the iteration counts: scheduling, tensors, model, sampling, commit. Rows are divided by
their time, so that what is small is the relative error; the first iterations (warm-up) and outliers are left out.
Where no swapping was measured, its price is assumed (`swap_assumed`).

Omission: no theory of the machine, so far from the measured sizes it only extrapolates, and says so (`beyond`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.whatif.journal import FEATURES, Journal, Work
from engine.whatif.nnls import Array, nnls

WARM_UP = 5
"""Iterations at the start that are left out, where enough others are there."""
ENOUGH = 12
"""With fewer samples only a constant and tokens are fitted."""
OUTLIER = 5.0
"""Relative residuals further than this many median absolute deviations from their median are left out."""
NO_OUTLIER = 0.02
"""Never one closer than this, however good the fit."""
EXPLAINED = 0.9
"""Where less of the time is explained, people are told."""
BEYOND = 2.0
"""A forecast at more than this many times the largest measured size is an extrapolation."""
SWAP_SHARE = 0.2
"""Copying a block is assumed to take this much of computing its tokens, where it was not measured."""
DEFAULT_STEP_S, DEFAULT_SEQ_S = 1e-3, 1e-5
"""Where nothing was measured."""


@dataclass(frozen=True, slots=True)
class FittedCosts:
    step: float = DEFAULT_STEP_S
    """Seconds of any iteration."""
    seq: float = DEFAULT_SEQ_S
    """More for each sequence, and so on."""
    token: float = 0.0
    context: float = 0.0
    attention: float = 0.0
    swap: float = 0.0
    """A block of `block_size` tokens."""
    swap_assumed: bool = False
    """Swapping was not measured."""
    block_size: int = 0
    """0: that of whatever block is copied."""
    between: float = 0.0
    """Seconds from the end of an iteration to the start of the next while there is work."""
    forward_share: float = 1.0
    """How much of an iteration is the forward pass."""
    samples: int = 0
    """Iterations the fit rests on."""
    outliers: int = 0
    mape: float | None = None
    """Mean absolute error over the samples, as a share of each."""
    mape_later: float | None = None
    """The same for the last quarter of the samples, when only those before are fitted."""
    explained: float | None = None
    """Modelled time of all measured iterations, outliers included, as a share of the measured time."""
    condition: float | None = None
    """Condition number of the scaled features: above 100 or so only the sum means much, not the single coefficients."""
    most_tokens: int = 0
    """Largest T measured."""
    most_context: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def fit(cls, journal: Journal, at_step: int | None = None) -> FittedCosts:
        """at_step: where the engine was built anew, only what the one of that iteration did counts."""
        span, notes = range(journal.num_records), []
        if at_step is not None and (stretch := journal.stretch(at_step)) != span:
            if np.count_nonzero(_within(journal, stretch)) >= WARM_UP + ENOUGH:
                span = stretch
            else:
                notes.append("the engine of this iteration ran too briefly: times are fitted to the others as well")
        work, seconds = _rows(journal, span)
        between = _between(journal, span)
        size = journal.config.block_size
        measured = seconds > 0
        work, seconds = work[measured], seconds[measured]
        if not len(seconds):
            if between > 0:
                return cls(step=0.0, seq=0.0, between=between, notes=("iterations took no measurable time",))
            return cls(
                swap=SWAP_SHARE * DEFAULT_SEQ_S * size,
                swap_assumed=True,
                block_size=size,
                notes=("no iteration was measured: 1 ms and 10 µs a sequence are taken",),
            )
        if len(seconds) >= WARM_UP + ENOUGH:
            work, seconds = work[WARM_UP:], seconds[WARM_UP:]
        few = len(seconds) < ENOUGH
        coefficients = _fit(work, seconds, few)
        everything, total = work, float(seconds.sum())
        residual = _relative(work, seconds, coefficients)
        middle = np.median(residual)
        spread = np.median(np.abs(residual - middle))
        kept = np.abs(residual - middle) <= max(OUTLIER * spread, NO_OUTLIER)
        work, seconds = work[kept], seconds[kept]
        coefficients = _fit(work, seconds, few)
        explained = float((everything @ coefficients).sum()) / total
        notes += [f"only {len(seconds)} iterations were measured"] if few else []
        if explained < EXPLAINED:
            notes.append(
                f"interruptions took {1 - explained:.0%} of the measured time: the forecast is of a quieter machine"
            )
        later = None
        at = len(seconds) * 3 // 4
        if at >= ENOUGH:
            earlier = _fit(work[:at], seconds[:at], False)
            later = float(np.abs(_relative(work[at:], seconds[at:], earlier)).mean())
        step, seq, token, context, attention, swap = map(float, coefficients)
        assumed = few or not work[:, FEATURES].any()
        if assumed:
            swap = SWAP_SHARE * size * (token or float(seconds.sum() / work[:, 2].sum()))
        return cls(
            step,
            seq,
            token,
            context,
            attention,
            swap,
            swap_assumed=assumed,
            block_size=size,
            between=between,
            forward_share=_forward_share(journal, span),
            samples=len(seconds),
            outliers=int(len(kept) - kept.sum()),
            mape=float(np.abs(_relative(work, seconds, coefficients)).mean()),
            mape_later=later,
            explained=explained,
            condition=_condition(work / seconds[:, None]),
            most_tokens=int(work[:, 2].max()),
            most_context=int(work[:, 3].max()),
            notes=tuple(notes),
        )

    def seconds(self, work: Work) -> float:
        """Of one iteration, without swapping (see `swap_seconds`)."""
        return (
            self.step
            + self.seq * work.seqs
            + self.token * work.tokens
            + self.context * work.context
            + self.attention * work.attention
        )

    def swap_seconds(self, blocks: int, block_size: int) -> float:
        return self.swap * blocks * (block_size / self.block_size if self.block_size else 1.0)

    def beyond(self, work: Work) -> bool:
        """Whether this is far from anything measured."""
        if not self.samples:
            return False
        return work.tokens > BEYOND * self.most_tokens or work.context > BEYOND * max(self.most_context, 1)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _within(journal: Journal, span: range) -> NDArray[np.bool_]:
    """Which executed iterations are among these records."""
    seqs = np.asarray(journal.step_seqs, dtype=np.int64)
    return (seqs >= span.start) & (seqs < span.stop)


def _rows(journal: Journal, span: range) -> tuple[Array, Array]:
    """Features of each executed iteration, with the constant first, and how long it took."""
    kept = _within(journal, span)
    seqs = np.asarray(journal.step_seqs, dtype=np.int64)[kept]
    times = np.asarray(journal.ends, dtype=float)[seqs] - np.asarray(journal.starts, dtype=float)[seqs]
    work = np.asarray(journal.work, dtype=float).reshape(-1, FEATURES)[kept]
    return np.column_stack([np.ones(len(work)), work]), times


def _forward_share(journal: Journal, span: range) -> float:
    seqs = np.asarray(journal.step_seqs, dtype=np.int64)[_within(journal, span)]
    total = float((np.asarray(journal.ends)[seqs] - np.asarray(journal.starts)[seqs]).sum())
    return min(1.0, float(np.asarray(journal.forwards)[seqs].sum()) / total)


def _between(journal: Journal, span: range) -> float:
    if len(span) < 2:
        return 0.0
    at = slice(span.start, span.stop)
    starts, ends = np.asarray(journal.starts, dtype=float)[at], np.asarray(journal.ends, dtype=float)[at]
    flows = np.asarray(journal.flows, dtype=bool)[at][:-1] & np.asarray(journal.asked, dtype=bool)[at][1:]
    gaps = (starts[1:] - ends[:-1])[flows]
    return max(0.0, float(np.median(gaps))) if len(gaps) else 0.0


def _fit(work: Array, seconds: Array, few: bool) -> Array:
    columns = [0, 2] if few else list(range(FEATURES + 1))
    coefficients = np.zeros(FEATURES + 1)
    if len(seconds):
        coefficients[columns] = nnls(work[:, columns] / seconds[:, None], np.ones(len(seconds)))
    return coefficients


def _relative(work: Array, seconds: Array, coefficients: Array) -> Array:
    error: Array = (work @ coefficients) / seconds - 1
    return error


def _condition(rows: Array) -> float | None:
    used = rows[:, rows.any(axis=0)]
    scaled = used / np.linalg.norm(used, axis=0)
    value = float(np.linalg.cond(scaled)) if len(scaled) >= scaled.shape[1] else np.inf
    return value if np.isfinite(value) else None
