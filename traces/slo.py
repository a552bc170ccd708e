"""`Slo`: what a request has to keep to count as good: limits on its time to the first token and per token.

The presets are limits MLPerf Inference sets for its Server scenario (mlperf.conf). MLPerf asks that the 99th
percentile of a run keeps them; here they are asked of each request, and the share that keeps them is told. They are
meant for big GPUs: `scale` stretches both limits for slower machines (the "SLO scale" of Y. Zhong et al., "DistServe",
OSDI 2024).
Invariant: imports nothing heavy; the command line names the presets in its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LIMITS_MS: dict[str, tuple[float, float]] = {
    "chat": (2000, 200),
    "interactive": (450, 40),
    "llama2-70b": (2000, 200),
    "llama2-70b-interactive": (450, 40),
    "llama3.1-8b": (2000, 100),
    "llama3.1-8b-interactive": (500, 30),
    "llama3.1-405b": (6000, 175),
    "llama3.1-405b-interactive": (4500, 80),
    "mixtral": (2000, 200),
    "deepseek-r1": (2000, 80),
    "deepseek-r1-interactive": (1500, 15),
    "gpt-oss-120b": (3000, 80),
    "gpt-oss-120b-interactive": (2000, 15),
}
"""Preset: TTFT and TPOT in milliseconds. The first two are those of llama2-70b under a name for their use."""


@dataclass(frozen=True, slots=True)
class Slo:
    ttft_s: float | None
    """Most seconds to the first token; None: no limit."""
    tpot_s: float | None
    """Most seconds per further token; None: no limit."""
    scale: float = 1.0
    """Both limits are multiplied by it."""
    name: str = "custom"

    @classmethod
    def preset(cls, name: str, scale: float = 1.0) -> Slo:
        """KeyError for a name that is not in LIMITS_MS."""
        ttft, tpot = LIMITS_MS[name]
        return cls(ttft / 1000, tpot / 1000, scale, name)

    def met(self, ttft: float | None, tpot: float | None) -> bool:
        """Whether a completed request with these figures is good. A limit belongs to what it allows.

        Without a TPOT (one token) TTFT alone decides.
        """
        return _within(ttft, self.ttft_s, self.scale) and (tpot is None or _within(tpot, self.tpot_s, self.scale))

    def as_dict(self) -> dict[str, Any]:
        """The limits as they are applied, scale included."""
        return {
            "name": self.name,
            "ttft_s": None if self.ttft_s is None else round(self.ttft_s * self.scale, 6),
            "tpot_s": None if self.tpot_s is None else round(self.tpot_s * self.scale, 6),
            "scale": self.scale,
        }


def _within(value: float | None, limit: float | None, scale: float) -> bool:
    """Judged by what is printed: to the microsecond."""
    if limit is None:
        return True
    return value is not None and round(value, 6) <= round(limit * scale, 6)
