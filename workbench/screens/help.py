"""Help on the focused panel, then all keys."""

from __future__ import annotations

from inspect import cleandoc

from textual.binding import Binding

from workbench.screens.keys import KEYS
from workbench.screens.reading import Reader, ReadingScreen
from workbench.text import fit, wrap
from workbench.widgets.panel import Line

MORE = (
    ("[ ]", "Less, more", "With the focus on the knobs: change the chosen one; enter applies it"),
    ("^p", "Palette", "All commands by name"),
)


class HelpScreen(ReadingScreen):
    BINDINGS = [Binding("question_mark", "dismiss", "Close", show=False, id="help.close")]

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(f"Help: {topic}")
        self.text = cleandoc(text)

    def lines(self, width: int) -> list[Line]:
        look = self.query_one(Reader).look
        out: list[Line] = []
        for paragraph in paragraphs(self.text):
            out += [((line, look.text),) for line in wrap(paragraph, width)]
        out += [(), (("Keys", look.title),)]
        for key in (*((key.shown, key.word, key.help) for key in KEYS), *MORE):
            name = fit(key[0], 10, ">")
            texts = wrap(f"{key[1]}: {key[2]}", max(10, width - 12))
            out.append(((name, look.key), ("  ", look.text), (texts[0], look.text)))
            out += [((" " * 12 + more, look.text),) for more in texts[1:]]
        return out


LONG = 90
"""Characters from which on a line of help text goes on in the next one."""


def paragraphs(text: str) -> list[str]:
    """Lines without the breaks that the width of the source made."""
    out: list[str] = []
    going_on = False
    for line in text.splitlines():
        if going_on and line.strip():
            out[-1] += " " + line.strip()
        else:
            out.append(line)
        going_on = len(line) >= LONG
    return out
