"""Every format that is read, each in a file of its own."""

from __future__ import annotations

from traces.readers.azure import Azure
from traces.readers.base import Reader
from traces.readers.blis import Blis
from traces.readers.burstgpt import BurstGpt
from traces.readers.generic_csv import GenericCsv
from traces.readers.json_readers import JSON_READERS
from traces.readers.native import Native
from traces.readers.servegen import ServeGen
from traces.readers.splitwise import SplitwiseSim
from traces.readers.tracelab import TraceLab
from traces.readers.vidur import Vidur
from traces.readers.vtc import Vtc

READERS: list[Reader] = [
    # CSV
    Azure(),
    BurstGpt(),
    Vidur(),
    SplitwiseSim(),
    Vtc(),
    ServeGen(),
    Blis(),
    TraceLab(),
    GenericCsv(),
    # JSON
    Native(),
    *JSON_READERS,
]
