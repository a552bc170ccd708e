"""`Watch`: the token times of requests that are alive, which `Future.before` needs and an engine does not keep."""

from __future__ import annotations

from engine.engine import Engine
from engine.records import Iteration
from engine.whatif.future import Before


class Watch:
    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}
        """First and last token."""

    def see(self, it: Iteration) -> None:
        times = self._times
        for token in it.tokens:
            first = times[token.id][0] if token.id in times else it.t_end
            times[token.id] = (first, it.t_end)
        for done in it.finished:
            times.pop(done.id, None)

    def before(self, engine: Engine) -> tuple[Before, ...]:
        """Of every request that is in the engine now, in order of arrival."""
        rows = []
        for request in engine.scheduler.requests.values():
            first, last = self._times.get(request.id, (None, None))
            rows.append(
                Before(
                    request.id,
                    request.client,
                    request.arrival or 0.0,
                    request.num_prompt,
                    request.num_output,
                    first,
                    last,
                    request.num_preemptions,
                    request.recomputed_tokens,
                )
            )
        return tuple(sorted(rows, key=lambda row: (row.arrival, row.id)))
