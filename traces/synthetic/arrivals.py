"""When requests come: gaps of a gamma distribution, a slow swing, idle times, and streams of several clients.

Gaps have shape 1/CV², so CV 1 is a Poisson process and above 1 comes in bursts (vLLM's burstiness is 1/CV²). They are
drawn in strata and stretched so that the mean rate is exactly what was asked, over a small run too.

Invariant: times are whole microseconds, in order, from 0; n of them at `rate` a second end at (n - 1) / rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from traces.synthetic.draw import Draw

TICKS = 1_000_000
"""A second. Microseconds, so that a time in seconds is written the same way everywhere."""


_SKEW = 1.2
"""Above 1, short idle times are more likely: it gives the 20 an hour of Azure's code trace their CV of 13 over all."""
_MOST_IDLE = 0.75


def gamma_gaps(n: int, cv: float, draw: Draw) -> list[float]:
    """n gaps of mean about 1 and this coefficient of variation, in random order."""
    parts = draw.ascending(n)
    if parts:
        # The longest gap of bursty streams is a tenth of their variance: it is not left to chance. The tail is
        # exponential, where the mean of the last n-th part lies at 1 - 1/(e n).
        parts[-1] = 1 - 1 / (math.e * n)
    shape, gaps, last = 1 / cv**2, [], 0.0
    for part in parts:
        last = -math.log1p(-part) if cv == 1.0 else _inverse_gamma(shape, part, last)
        gaps.append(last / shape)
    draw.shuffle(gaps)
    return gaps


def _inverse_gamma(shape: float, part: float, start: float) -> float:
    """x below which this part of a gamma distribution of scale 1 lies. `start`: a little less than x, or 0.

    Newton's method in log x, kept between bounds: the density is infinite at 0 for shapes below 1.
    """
    # Near 0 the distribution is x^shape / gamma(shape + 1); below 1e-4 the next term is under a ten-thousandth.
    near = math.exp(min((math.log(part) + math.lgamma(shape + 1)) / shape, 50.0)) if part else 0.0
    if near < 1e-4:
        return near
    low, high = start, math.inf
    x = max(start, min(near, shape + 1))
    for _ in range(100):
        below, density = _gamma(shape, x)
        error = below - part
        if error > 0:
            high = x
        else:
            low = x
        if abs(error) < 1e-12 * min(part, 1 - part) + 1e-15:
            break
        step = x * math.exp(max(min(-error / (density * x), 1.0), -1.0)) if density else math.inf
        if not low < step < high:
            step = (low + high) / 2 if high < math.inf else x * 2 + 1e-6
        if abs(step - x) < 1e-10 * x:
            break
        x = step
    return x


def _gamma(shape: float, x: float) -> tuple[float, float]:
    """(share below x, density at x) of a gamma distribution of scale 1: a series, or a continued fraction far out."""
    density = math.exp((shape - 1) * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        step = shape
        while term > total * 1e-15:
            step += 1
            term *= x / step
            total += term
        return density * x * total, density
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    fraction = d
    for i in range(1, 200):
        a = -i * (i - shape)
        b += 2
        d = 1 / ((a * d + b) or tiny)
        c = (b + a / c) or tiny
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return 1 - density * x * fraction, density


def _ticks(gaps: Sequence[float], span: float) -> list[int]:
    """Times from 0 with these gaps between them, stretched so that the last is at `span` seconds."""
    total = math.fsum(gaps)
    stretch = span * TICKS / total if total else 0.0
    times, now = [0], 0.0
    for gap in gaps:
        now += gap
        times.append(round(now * stretch))
    return times


def steady(n: int, rate: float, cv: float, draw: Draw) -> list[int]:
    """n times of one stream."""
    return _ticks(gamma_gaps(n - 1, cv, draw), (n - 1) / rate) if n else []


def swinging(n: int, rate: float, cv: float, swing: float, draw: Draw) -> list[int]:
    """As steady, but the rate goes once from `1 - swing` of its mean up to `1 + swing` in the middle and back."""
    if n < 2:
        return [0] * n
    gaps = gamma_gaps(n - 1, cv, draw)
    total = math.fsum(gaps)
    span = (n - 1) / rate * TICKS
    times, share = [0], 0.0
    for gap in gaps:
        share += gap / total
        times.append(round(span * _warp(min(share, 1.0), swing)))
    return times


def _warp(share: float, swing: float) -> float:
    """Part of the run in which this share of its requests has come: x - swing sin(2 pi x) / 2 pi = share, Newton."""
    x = share
    for _ in range(50):
        error = x - swing * math.sin(math.tau * x) / math.tau - share
        x -= error / (1 - swing * math.cos(math.tau * x))
        if abs(error) < 1e-13:
            break
    return x


def with_idle(n: int, rate: float, cv: float, draw: Draw, *, per_hour: float, idle: tuple[float, float]) -> list[int]:
    """Bursts of this CV with idle times of `idle` seconds between them, `per_hour` of them; the mean rate is of all.

    Idle times keep their length whatever the rate: nobody thinks faster because a server is slow.
    """
    if n < 2:
        return [0] * n
    span = (n - 1) / rate
    breaks = min(round(per_hour * span / 3600), (n - 1) // 2)
    low, high = idle
    pauses = [low + (high - low) * part**_SKEW for part in draw.strata(breaks)]
    if breaks and (idle_share := math.fsum(pauses) / span) > _MOST_IDLE:  # a run of a few minutes
        pauses = [max(pause * _MOST_IDLE / idle_share, low) for pause in pauses]
    times = _ticks(gamma_gaps(n - 1, cv, draw), max(span - math.fsum(pauses), 0.0))
    late, place = 0, 0
    for pause, part in zip(pauses, draw.ascending(breaks), strict=True):
        begin = max(1 + int(part * (n - 1)), place + 1)
        for number in range(place, min(begin, n)):
            times[number] += late
        late += round(pause * TICKS)
        place = min(begin, n - 1)
    for number in range(place, n):
        times[number] += late
    return times


def streams(counts: Sequence[int], cvs: Sequence[float], span: float, draw: Draw) -> list[tuple[int, int]]:
    """(time, client number) of independent streams side by side over `span` seconds, in order of time.

    Each begins within its first mean gap and keeps all its gaps whole.
    """
    merged: list[tuple[int, int]] = []
    for client, (count, cv) in enumerate(zip(counts, cvs, strict=True)):
        if not count:
            continue
        mean = span / count
        times = _ticks(gamma_gaps(count - 1, cv, draw), mean * (count - 1))
        offset = round(draw.random() * mean * TICKS)
        merged += [(time + offset, client) for time in times]
    merged.sort()
    first = merged[0][0] if merged else 0
    return [(time - first, client) for time, client in merged]
