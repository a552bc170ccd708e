"""How torch's worker threads wait for each other.

GNU OpenMP's workers spin for milliseconds between operations. On a machine that also draws a screen, or that anybody
else uses, a spinning worker takes the core that the late one needs: measured with one busy neighbour on two cores,
decoding was 1.4 to 2.6 times as fast with a short spin (2000 rounds, a few microseconds) as with the default.
Only the environment can say so, and only before torch is loaded, so `engine` imports this first. A value that a
person has set is left alone.
"""

from __future__ import annotations

import os

SPIN_ROUNDS = 2000

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_ROUNDS))
