"""Tokens a second of a fixed workload, screen off: the median of a few runs, each in a process of its own.

    make bench                                     the default model, three runs
    make bench ARGS='--repeats 5 -- --threads 1'   what follows -- goes to workbench run

Every request asks for a fixed number of tokens of a random prompt, all of them at the start, so the work is the same
each time. What else the machine does shows as spread between the runs: look at lowest and highest before comparing.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

WORKLOAD = Path(__file__).parent / "mixed.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description="Throughput of a fixed workload.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workload", type=Path, default=WORKLOAD)
    parser.add_argument("options", nargs="*", help="options of workbench run, after --")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "workbench", "run", "--headless", "--json", "--workload", str(asked.workload)]
    runs = []
    for number in range(1, asked.repeats + 1):
        done = subprocess.run([*command, *asked.options], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            return done.returncode
        run = json.loads(done.stdout)
        runs.append(run)
        print(
            f"run {number}: {run['output_tok_s']:8.1f} output tok/s  {run['total_tok_s']:8.1f} with prompts", flush=True
        )
    first = runs[0]
    result = {
        "model": first["model"],
        "device": first["device"],
        "dtype": first["dtype"],
        "workload": asked.workload.name,
        "tokens": first["tokens"],
        "runs": len(runs),
        **{name: statistics.median(run[name] for run in runs) for name in ("output_tok_s", "total_tok_s", "wall_s")},
        "output_tok_s_lowest": min(run["output_tok_s"] for run in runs),
        "output_tok_s_highest": max(run["output_tok_s"] for run in runs),
        "ttft_p50_s": statistics.median(run["ttft_s"]["p50"] for run in runs),
    }
    print(f"median {result['output_tok_s']:8.1f} output tok/s  {result['total_tok_s']:8.1f} with prompts")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
