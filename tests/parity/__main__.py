"""`python -m tests.parity CASES_DIR OUT_DIR`: write the trace of every case in a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.parity.drive import run_case


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: python -m tests.parity CASES_DIR OUT_DIR", file=sys.stderr)
        return 2
    cases, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(cases.glob("*.json"))
    for path in paths:
        trace = run_case(json.loads(path.read_text()))
        lines = (json.dumps(line, separators=(",", ":")) for line in trace)
        (out / f"{path.stem}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(paths)} traces written to {out}")
    return 0 if paths else 1


if __name__ == "__main__":
    sys.exit(main())
