"""Command-line options made from the KNOBS table: the only place that describes a knob stays the table.

Every knob takes its own name (`max_num_seqs` is `--max-num-seqs`) and, where that differs, vLLM's spelling too.
Values are read by the table's own check, so a bad one is refused with the same sentence everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from engine.knobs import KNOBS, Knob


def flags(knob: Knob) -> list[str]:
    names = [f"--{knob.name.replace('_', '-')}"]
    if knob.vllm.startswith("--") and knob.vllm not in names:
        names.append(knob.vllm)
    return names


def with_knobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command(..., knobs)` as a function with one keyword option per knob; `knobs` gets those that were given."""

    def run(**values: Any) -> Any:
        given = {name: value for name in KNOBS if (value := values.pop(name)) is not None}
        return command(**values, knobs=given)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "knobs"]
    made = [
        inspect.Parameter(
            knob.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[_kind(knob), _option(knob)]
        )
        for knob in KNOBS.values()
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = signature.replace(parameters=own + made)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + made}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _kind(knob: Knob) -> Any:
    return bool | None if knob.type is bool else str | None


def _option(knob: Knob) -> Any:
    names = flags(knob)
    metavar = {bool: None, int: "INTEGER", float: "NUMBER", str: "WORD"}[knob.type]
    if knob.type is bool:
        names = [f"{name}/--no-{name[2:]}" for name in names]
    return typer.Option(*names, help=f"{knob.help} ({_facts(knob)})", metavar=metavar, show_default=False)


def _facts(knob: Knob) -> str:
    default = {True: "on", False: "off"}.get(knob.default) if knob.type is bool else knob.default  # type: ignore[arg-type]
    facts = [] if default is None else [f"default {default}"]
    if knob.type is not bool:
        facts.append(knob.range_text)
    if knob.live:
        facts.append("live")
    return ", ".join(facts)


def describe(knob: Knob) -> str:
    """Three lines for `workbench knobs`."""
    others = [
        f"{engine}: {name}"
        for engine, name in (("vLLM", knob.vllm), ("SGLang", knob.sglang), ("TensorRT-LLM", knob.trtllm))
        if name
    ]
    lines = [f"{knob.name}  ({_facts(knob)})", f"    {knob.help}"]
    if others:
        lines.append(f"    {' · '.join(others)}")
    return "\n".join(lines)
