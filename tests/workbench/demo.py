"""python -m tests.workbench.demo: the live screen over the scripted host, to look at."""

from __future__ import annotations

import sys
import time

from tests.workbench.scripted import ScriptedHost, traffic
from workbench.app import Options, run_app
from workbench.model.session import Progress, Session


def load(progress: Progress) -> Session:
    for n in range(6):
        progress("weights", n, 5)
        time.sleep(0.1)
    pace = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    host = ScriptedHost({"num_blocks": 64}, by_itself=True, step_seconds=1 / pace)
    return Session(host, lambda text: [ord(c) % 1000 for c in text], tuple(traffic(400)))


if __name__ == "__main__":
    sys.exit(run_app(load, Options()))
