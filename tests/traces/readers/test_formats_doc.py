"""`docs/formats.md` names every format that is read, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from traces.readers import READERS

DOC = Path(__file__).parents[3] / "docs" / "formats.md"


def test_every_format_is_in_the_documentation() -> None:
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", DOC.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(reader.name for reader in READERS)
