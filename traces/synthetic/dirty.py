"""Preset `dirty`: files as people really have them, to see what the readers say.

Three files, because no file can be all of it. A folder gets all three; a path that ends in `.csv` gets the first,
any other the second.

- `dirty.csv`: BurstGPT with eight columns, two of them new and not at the end. A byte-order mark, CRLF, a blank line
  inside, no final newline.
- `dirty.jsonl`: Mooncake. A byte-order mark, CRLF, blank lines, a last line that was cut.
- `headless.csv`: Azure 2024 without its header, as `tail` leaves it: the columns have to be given. Some dates have no
  fraction.

In the first two: rows out of order, zero lengths (requests that failed at the source), negative, `NaN` and broken
lengths, whole numbers written `431.0`, a prompt longer than any window, U+2028 inside text; in the second also rows
with fewer prefix ids than their prompt has blocks. `EXPECTED` says what a reader has to make of each file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import WorkbenchError
from traces.synthetic.draw import Draw
from traces.synthetic.grids import lengths

LONGEST = 191_378
"""Tokens of the longest prompt of the public Mooncake traces."""
HEADLESS_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_GOOD = 24
_SEPARATOR = "\u2028"
_BLOCK = 512


class Expected(NamedTuple):
    """What becomes of the rows of one file. Blank lines are no rows."""

    read: int
    kept: int
    failed: int
    """Of the kept."""
    dropped: int
    inversions: int


EXPECTED = {
    "dirty.csv": Expected(read=32, kept=29, failed=2, dropped=3, inversions=1),
    "dirty.jsonl": Expected(read=34, kept=28, failed=2, dropped=6, inversions=1),
    "headless.csv": Expected(read=24, kept=24, failed=0, dropped=0, inversions=0),
}


def dirty_files(path: Path) -> tuple[Path, ...]:
    """What `write_dirty` writes: one file, or all of them in a folder that is there."""
    return tuple(path / name for name in _WRITERS) if path.is_dir() else (path,)


def write_dirty(path: Path, seed: int) -> tuple[Path, ...]:
    """Writes `dirty_files`. Only the good rows' lengths depend on the seed."""
    files = dirty_files(path)
    for file in files:
        name = "dirty.csv" if file.suffix.lower() == ".csv" else "dirty.jsonl"
        write = _WRITERS[file.name if path.is_dir() else name]
        try:
            file.write_bytes(write(Draw(seed, "dirty")))
        except OSError as error:
            raise WorkbenchError(f"{file} cannot be written: {error.strerror or error}") from None
    return files


def _good(trace: str, draw: Draw) -> list[tuple[int, int]]:
    grid = lengths(trace)
    return [
        (round(grid.prompt.at(prompt)), round(grid.output.at(output)))
        for prompt, output in zip(draw.strata(_GOOD), draw.strata(_GOOD), strict=True)
    ]


def _burstgpt(draw: Draw) -> bytes:
    begin = 19_440_110.0
    rows: list[list[Any]] = []
    for number, (prompt, output) in enumerate(_good("azure2023_conv", draw)):
        session, log = (f"s-{number % 5}", "Conversation log") if number % 3 else ("", "API log")
        rows.append([begin + 7 * number, session, 3.5, "GPT-4", prompt, output, prompt + output, log])

    def odd(place: int, prompt: Any, output: Any, session: str = "s-1", late: float = 3) -> None:
        """Put in after good row `place`, `late` seconds after it."""
        at = next(at for at, row in enumerate(rows) if row[0] == begin + 7 * place)
        total = prompt + output if isinstance(prompt, int) and isinstance(output, int) else ""
        rows.insert(at + 1, [begin + 7 * place + late, session, 3.5, "ChatGPT", prompt, output, total, "API log"])

    odd(2, 472, 0)
    odd(4, 0, 0)
    odd(6, -5, 18)
    odd(8, "NaN", 18)
    odd(10, 12.5, 18)
    odd(12, "431.0", "27.0")
    odd(14, LONGEST, 350)
    odd(16, 230, 12, session=f"s{_SEPARATOR}1")
    rows[-2], rows[-1] = rows[-1], rows[-2]
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    lines.insert(20, "")
    return b"\xef\xbb\xbf" + "\r\n".join(lines).encode()


def _mooncake(draw: Draw) -> bytes:
    rows: list[dict[str, Any]] = []

    def add(number: int, prompt: Any, output: Any, short: int = 0, **more: Any) -> None:
        blocks = max(0, -(-prompt // _BLOCK)) if isinstance(prompt, int | float) and prompt == prompt else 1
        ids = [0, *range(1000 * len(rows) + 1, 1000 * len(rows) + int(blocks))][: int(blocks) - short]
        rows.append(
            {"timestamp": number * 3000, "input_length": prompt, "output_length": output, "hash_ids": ids, **more}
        )

    odd: dict[int, Callable[[int], None]] = {
        2: lambda number: add(number, 900, 0),
        4: lambda number: add(number, 0, 0),
        6: lambda number: add(number, -5, 18),
        8: lambda number: add(number, float("nan"), 18),
        10: lambda number: add(number, 12.5, 18),
        12: lambda number: add(number, 431.0, 27.0),
        14: lambda number: add(number, LONGEST, 350),
        16: lambda number: add(number, 2000, 40, short=2),
        17: lambda number: add(number, 5000, 40, short=9),
    }
    for number, (prompt, output) in enumerate(_good("mooncake_conversation", draw)):
        more: dict[str, Any] = {"user": f"u{_SEPARATOR}1"} if number == 5 else {}
        add(number, prompt, output, 0, **more)
        if number in odd:
            odd[number](number)
    rows[-2], rows[-1] = rows[-1], rows[-2]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    cut = json.dumps({"timestamp": 75_000, "input_length": 900, "output_length": 40, "hash_ids": [0, 1]})
    lines.insert(9, "")
    return b"\xef\xbb\xbf" + "\r\n".join([*lines, "", cut[:40]]).encode()


def _azure_headless(draw: Draw) -> bytes:
    lines = []
    for number, (prompt, output) in enumerate(_good("azure2023_code", draw)):
        fraction = "" if number % 4 == 3 else f".{draw.below(1_000_000):06d}"
        lines.append(f"2024-05-10 00:00:{2 * number:02d}{fraction}+00:00,{prompt},{output}")
    return ("\n".join(lines) + "\n").encode()


_WRITERS: dict[str, Callable[[Draw], bytes]] = {
    "dirty.csv": _burstgpt,
    "dirty.jsonl": _mooncake,
    "headless.csv": _azure_headless,
}
