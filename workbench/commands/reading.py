"""Options of every command that reads a file of requests, in one place: `with_reading` adds them.

Invariant: light imports only; the command gets a `ReadOptions`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from workbench.commands.options import check_range


class TimeUnit(StrEnum):
    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"


class Failed(StrEnum):
    keep = "keep"
    drop = "drop"
    min1 = "min1"


class ShortIds(StrEnum):
    reject = "reject"
    tail = "tail"


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "format": (
        Annotated[
            str | None,
            typer.Option(
                "--format", "-f", metavar="NAME", help="Format of the file (default: found by looking at its content)."
            ),
        ],
        None,
    ),
    "time_unit": (
        Annotated[
            TimeUnit | None,
            typer.Option("--time-unit", help="Unit of times that are numbers (default: the format's own)."),
        ],
        None,
    ),
    "columns": (
        Annotated[
            str | None,
            typer.Option(metavar="A,B,C", help="Names of the columns of a CSV file without a header, in order."),
        ],
        None,
    ),
    "failed": (
        Annotated[
            Failed,
            typer.Option(
                help="Rows that failed at their source (zero lengths): keep (known, not sent), drop, or min1 (sent "
                "with 1 token)."
            ),
        ],
        Failed.keep,
    ),
    "short_ids": (
        Annotated[
            ShortIds,
            typer.Option(
                "--short-ids",
                help="Rows with fewer prefix ids than their prompt needs: reject, or tail (the rest is private).",
            ),
        ],
        ShortIds.reject,
    ),
    "id_block": (
        Annotated[
            int | None,
            typer.Option(
                "--id-block", metavar="N", help="Tokens that each block id stands for (default: as the format says)."
            ),
        ],
        None,
    ),
    "client_from": (
        Annotated[
            str | None, typer.Option("--client-from", metavar="NAME", help="Column or field that names the client.")
        ],
        None,
    ),
    "strict": (
        Annotated[bool, typer.Option("--strict", help="Fail (exit code 2) if any row was dropped.")],
        False,
    ),
}


def with_reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command(..., reading)` as a function with an option for each field of `ReadOptions`; `reading` is made of them.

    Other decorators of this kind may be applied before or after it.
    """

    def run(**values: Any) -> Any:
        return command(**{name: values[name] for name in values if name not in _OPTIONS}, reading=_made(values))

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "reading"]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    made = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=own + made)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + made}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _made(values: dict[str, Any]) -> Any:
    from traces.rows import ReadOptions

    columns = values["columns"]
    check_range("--id-block", values["id_block"], 1, 1 << 20)
    return ReadOptions(
        format=values["format"],
        time_unit=values["time_unit"].value if values["time_unit"] else None,
        columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        failed=values["failed"].value,
        short_ids=values["short_ids"].value,
        id_block=values["id_block"],
        client_from=values["client_from"],
        strict=values["strict"],
    )
