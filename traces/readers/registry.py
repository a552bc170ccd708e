"""Every format that is read, each in a file of its own."""

from __future__ import annotations

from traces.readers.azure import Azure
from traces.readers.base import Reader
from traces.readers.json_readers import JSON_READERS
from traces.readers.native import Native

READERS: list[Reader] = [
    # CSV
    Azure(),
    # JSON
    Native(),
    *JSON_READERS,
]
