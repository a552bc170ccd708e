"""What if: from any iteration of a recording go on with other knobs, and see both futures.

`Journal` reads the records; `fork` and `ForkPoint` give futures at once, without a model; `rerun` computes
one for real; `compare` sets two side by side.

    journal = Journal(info.config)
    for record in records:
        journal.add(record)
    point = ForkPoint(journal.copy(), at_step=120)
    comparison = compare(point.baseline, point.future({"max_num_seqs": 4}))
"""

from engine.whatif.compare import Comparison, compare
from engine.whatif.costs import FittedCosts
from engine.whatif.fork import ForkPoint, fork, replay
from engine.whatif.future import Future
from engine.whatif.journal import Journal
from engine.whatif.rerun import Rerun, rerun

__all__ = ["Comparison", "FittedCosts", "ForkPoint", "Future", "Journal", "Rerun", "compare", "fork", "replay", "rerun"]
