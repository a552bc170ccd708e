"""Every format that can be written, by the name `--to` takes."""

from __future__ import annotations

import dataclasses

from engine.errors import WorkbenchError
from traces.workload import RequestSpec
from traces.writers.azure import AzureWriter
from traces.writers.bailian import BailianWriter
from traces.writers.base import Writer, json_line
from traces.writers.burstgpt import BurstGptWriter
from traces.writers.llmservingsim import LlmServingSimWriter
from traces.writers.mooncake import MooncakePlusWriter, MooncakeWriter
from traces.writers.native import native_row
from traces.writers.openai_batch import OpenAiBatchWriter
from traces.writers.splitwise import SplitwiseWriter
from traces.writers.table import TableWriter
from traces.writers.vidur import VidurWriter
from traces.writers.vllm_custom import VllmCustomWriter


class NativeWriter(Writer):
    name = "native"
    title = "the workbench's own requests: JSON lines, seconds; holds everything"
    fields = frozenset(field.name for field in dataclasses.fields(RequestSpec))
    has_id = True

    def row(self, spec: RequestSpec) -> str:
        return json_line(native_row(spec), (", ", ": "))


_CLASSES: tuple[type[Writer], ...] = (
    NativeWriter,
    MooncakeWriter,
    MooncakePlusWriter,
    AzureWriter,
    BurstGptWriter,
    VidurWriter,
    SplitwiseWriter,
    BailianWriter,
    LlmServingSimWriter,
    OpenAiBatchWriter,
    VllmCustomWriter,
    TableWriter,
)
WRITERS: dict[str, type[Writer]] = {each.name: each for each in _CLASSES}


def find_writer(name: str) -> type[Writer]:
    """Raises WorkbenchError with the names there are."""
    if (found := WRITERS.get(name)) is None:
        raise WorkbenchError(f"--to: {name!r} is not a format that can be written; there are {', '.join(WRITERS)}")
    return found
