"""The token budget: how each iteration spent it, the mean, and the one under the cursor in detail.

One line high it shows the newest (or chosen) iteration only.
"""

from __future__ import annotations

from array import array

from workbench.text import fit, width_of
from workbench.widgets.panel import Line, Panel, Scene, Span


class Budget(Panel):
    TITLE = "Token budget"
    HELP = """How every iteration spent its token budget. Columns are those of the timeline.

    ▒ decode (one token for each running request)   █ prefill chunks   ▚ recompute   empty: unused

    "binds" tells what limited the last 64 iterations: KV_PRESSURE, SEQ_CAP, TOKEN_BUDGET or UNDERLOADED.
    The last line is the newest iteration, or the one under the cursor."""

    def note(self) -> str:
        return "decode + prefill + recompute"

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None or width < 10:
            return []
        if height < 3:
            return [self._one_line(scene, width)]
        return [*self._chart(scene, width, height - 2), self._mean(scene, width), self._step(scene, width)]

    # ---- parts ------------------------------------------------------------------------------------

    def _kinds(self, scene: Scene, step: int) -> tuple[int, int, int, int]:
        """Decode, prefill, recompute and budget of a step."""
        history = scene.history
        if not history.decode.first <= step < history.decode.end:
            return 0, 0, 0, int(scene.view.knobs.get("max_num_batched_tokens") or 0)
        return (
            int(history.decode[step]),
            int(history.prefill[step]),
            int(history.recompute[step]),
            int(history.budget[step]),
        )

    def _label_width(self) -> int:
        return 20 if self.size.width >= 84 else 18

    def _chart(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Stacked columns; each of height*2 half cells is one of the kinds."""
        history, look = scene.history, self.look
        label = self._label_width()
        columns = max(1, width - label)
        k = scene.per_column
        last = scene.fixed_right if scene.fixed_right is not None else history.last_step
        stop = (last // k + 1) * k
        first = stop - columns * k
        kinds = [
            self._column(series, first, stop, k) for series in (history.decode, history.recompute, history.prefill)
        ]
        top = max([*history.budget.between(max(0, first), stop), 1])
        grid = [bytearray(b" " * columns) for _ in range(height)]
        for x, (decode, recompute, prefill) in enumerate(zip(*kinds, strict=True)):
            used = 0.0
            cell = 0
            for code, tokens in ((b"d"[0], decode), (b"r"[0], recompute), (b"p"[0], prefill)):
                used += tokens
                end = min(height, max(round(used / top * height), cell + (tokens > 0)))
                for y in range(cell, end):
                    grid[height - 1 - y][x] = code
                cell = max(cell, end)
        lines: list[Line] = []
        for y, codes in enumerate(grid):
            text = f"{top:g} tok" if y == 0 else "0" if y == height - 1 else ""
            lines.append(((fit(text, label), look.muted), *self._spans(bytes(codes))))
        return lines

    def _column(self, series: object, first: int, stop: int, k: int) -> list[float]:
        """Mean of each k steps; 0 where nothing is known."""
        values: array[int] = series.between(max(0, first), stop)  # type: ignore[attr-defined]
        known_from = max(first, series.first)  # type: ignore[attr-defined]
        full = [0] * max(0, known_from - first) + list(values)
        full += [0] * (stop - first - len(full))
        if k == 1:
            return [float(v) for v in full]
        return [sum(full[i : i + k]) / k for i in range(0, len(full), k)]

    def _spans(self, codes: bytes) -> list[Span]:
        names = {b"d"[0]: "decode", b"r"[0]: "recompute", b"p"[0]: "prefill"}
        spans: list[Span] = []
        start = 0
        for x in range(1, len(codes) + 1):
            if x == len(codes) or codes[x] != codes[start]:
                if codes[start] in names:
                    char, style = self.look.named("budget", names[codes[start]])
                    spans.append((char * (x - start), style))
                else:
                    spans.append((" " * (x - start), self.look.text))
                start = x
        return spans

    def _bar(self, scene: Scene, step: int, width: int) -> list[Span]:
        decode, prefill, recompute, budget = self._kinds(scene, step)
        spans: list[Span] = []
        used, cell = 0, 0
        for name, tokens in (("decode", decode), ("recompute", recompute), ("prefill", prefill)):
            used += tokens
            end = min(width, round(used / max(1, budget) * width))
            char, style = self.look.named("budget", name)
            spans.append((char * (end - cell), style))
            cell = end
        char, style = self.look.named("budget", "unused")
        spans.append((char * (width - cell), style))
        return spans

    def _numbers(self, scene: Scene, step: int) -> str:
        decode, prefill, recompute, budget = self._kinds(scene, step)
        redo = f" + {recompute} re" if recompute else ""
        return f"{decode} dec + {prefill} pre{redo} / {budget}"

    def _one_line(self, scene: Scene, width: int) -> Line:
        numbers = f" {self._numbers(scene, scene.step)} "
        bar = self._bar(scene, scene.step, max(4, width - 8 - width_of(numbers)))
        label = self.look.title_focus if self.has_focus else self.look.muted
        return ((" budget ", label), *bar, (numbers, self.look.text))

    def _mean(self, scene: Scene, width: int) -> Line:
        history, look = scene.history, self.look
        stop = scene.step + 1
        first = max(history.decode.first, stop - 64)
        n = max(1, stop - first)
        decode = sum(history.decode.between(first, stop)) / n
        prefill = sum(history.prefill.between(first, stop)) / n
        recompute = sum(history.recompute.between(first, stop)) / n
        budget = sum(history.budget.between(first, stop)) / n
        unused = max(0.0, budget - decode - prefill - recompute)
        share = f" ({unused / budget:.0%})" if budget else ""
        redo = f"re {recompute:.1f}  " if recompute else ""
        text = f"mean {n} steps  dec {decode:.1f}  pre {prefill:.1f}  {redo}unused {unused:.1f}{share}"
        return ((text, look.text), ("   binds ", look.muted), (binds(scene, 1 if width < 100 else 3), look.strong))

    def _step(self, scene: Scene, width: int) -> Line:
        step = scene.step
        label = self._label_width()
        numbers = f" {self._numbers(scene, step)}"
        bar = self._bar(scene, step, max(4, width - label - width_of(numbers)))
        return ((fit(f"step {step}", label), self.look.text), *bar, (numbers, self.look.text))


def binds(scene: Scene, most: int = 2) -> str:
    """What limited the last 64 steps: "KV_PRESSURE 61%  SEQ_CAP 8%"."""
    _, shares = scene.history.limit_shares(scene.cursor)
    return "  ".join(f"{limit} {share:.0%}" for limit, share in shares[:most]) or "-"
