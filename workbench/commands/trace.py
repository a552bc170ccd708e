"""`workbench trace`: inspect, head, convert, generate.

What: what a file of requests holds, and how to get from one format to another.
Invariant: results go to stdout, everything else to stderr; a file that is written is there whole or not at all.
Light imports only: numpy and rich are imported by the commands that need them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import WorkbenchError
from workbench.commands.reading import with_reading
from workbench.say import StatusLine, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from traces.workload import RequestSpec

app = typer.Typer(help="Look into files of requests, convert them, make new ones.", no_args_is_help=True)

Input = Annotated[Path, typer.Argument(metavar="FILE", help="Any format that is known; gzip and zstd are unpacked.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Count the tokens of text with this model's tokenizer.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="OUT", help="File to write, packed if it ends in .gz or .zst; - is stdout."),
]
To = Annotated[str, typer.Option("--to", metavar="FORMAT", help="Format to write; --list names them all.")]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]


@app.command()
@with_reading
def inspect(
    file: Input,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the report.")] = False,
    model: Model = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", metavar="N", help="Count the rows that need more tokens than this.")
    ] = None,
    ascii: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")] = False,
    reading: Any = None,
) -> None:
    """What is this file: format, rows, lengths, arrivals, clients, prefix reuse."""
    import dataclasses

    from traces.inspection import Inspection, describe
    from traces.readers.trace import open_trace

    if max_model_len is not None and max_model_len < 1:
        raise WorkbenchError(f"--max-model-len: {max_model_len} is below 1")
    trace = open_trace(file, dataclasses.replace(reading, strict=False))  # the report comes before the refusal
    inspection = Inspection(measure=_row_measure(model), max_model_len=max_model_len)
    status = StatusLine()
    try:
        for chunk in trace.chunks():
            inspection.add(chunk)
            if status.due:
                status.show(f"{trace.report.read:,} rows read")
    finally:
        status.clear()
    figures = describe(trace, inspection)
    if json:
        import json as json_module

        typer.echo(json_module.dumps(figures, ensure_ascii=True))
    else:
        from workbench.trace_report import Printer, report

        report(Printer(ascii=ascii), figures, (inspection.prompt.histogram(), inspection.output.histogram()))
    _refuse_dropped(file, trace.report, reading)


@app.command()
@with_reading
def head(
    file: Input,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many rows.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Lines of the native format instead of a table.")] = False,
    ascii: Annotated[bool, typer.Option("--ascii", help="ASCII characters only.")] = False,
    reading: Any = None,
) -> None:
    """The first rows, as the workbench understands them. Times count from the earliest of these rows."""
    from traces.conversion import first_specs
    from traces.readers.trace import open_trace

    if n < 1:
        raise WorkbenchError(f"-n: {n} is below 1")
    trace = open_trace(file, reading)
    specs = first_specs(trace, n)
    if json:
        from traces.writers.registry import find_writer

        writer = find_writer("native")()
        for spec in specs:
            typer.echo(writer.write(spec), nl=False)
    else:
        from workbench.trace_report import Printer, head_table

        out = Printer(ascii=ascii)
        out.line(f"{trace.format} · {trace.title}")
        head_table(out, specs)
    report = trace.report
    for reason, count in report.dropped.items():
        say(f"dropped: {count:,} · {reason} ({report.examples[reason][0]})")
    for note in report.notes:
        say(f"note: {note}")
    _refuse_dropped(file, report, reading)


@app.command()
@with_reading
def convert(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Any format that is known.")] = None,
    out: Out = None,
    to: To = "native",
    model: Model = None,
    force: Force = False,
    list_: Annotated[bool, typer.Option("--list", help="List the formats that can be written.")] = False,
    reading: Any = None,
) -> None:
    """Write a file of requests in another format, and say what that format cannot hold."""
    from traces.writers.registry import WRITERS, find_writer

    if list_:
        room = max(map(len, WRITERS))
        for name, writer in WRITERS.items():
            typer.echo(f"{name:<{room}}  {writer.title}")
        return
    if file is None or out is None:
        raise WorkbenchError(f"{'a FILE' if file is None else '-o OUT'} is missing; see workbench trace convert --help")
    kind = find_writer(to)
    from traces.conversion import convert as run
    from traces.readers.trace import open_trace
    from traces.writers.output import check_output, output

    check_output(out, force=force, inputs=[file])
    measure = _spec_measure(model)

    def check(done: Any) -> None:
        _refuse_dropped(file, done.report, reading)
        if not done.account.written:
            raise WorkbenchError(_nothing(file, to, done))

    status = StatusLine()
    try:
        done = run(
            lambda: open_trace(file, reading),
            lambda start_ns: kind(start_ns, measure),
            lambda: output(out),
            say=lambda rows: status.show(f"{rows:,} rows written"),
            check=check,
        )
    finally:
        status.clear()
    _tell_rows(done, to, out)


@app.command()
def generate(
    preset: Annotated[str | None, typer.Argument(metavar="PRESET", help="Name of a preset; --list names them.")] = None,
    out: Out = None,
    n: Annotated[int | None, typer.Option("--n", "-n", metavar="N", help="Rows (default: the preset's).")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    rate: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Requests a second over all (default: the real trace's).")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of the run, in place of --n or --rate.")
    ] = None,
    len_scale: Annotated[
        float, typer.Option("--len-scale", metavar="NUMBER", help="Multiply prompt and output lengths by this.")
    ] = 1.0,
    max_len: Annotated[
        int | None, typer.Option("--max-len", metavar="N", help="Most tokens of a prompt and its answer together.")
    ] = None,
    slo_scale: Annotated[
        float, typer.Option("--slo-scale", metavar="NUMBER", help="Multiply deadlines by this.")
    ] = 1.0,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="A variant of the preset; --list names them.")
    ] = None,
    to: To = "native",
    force: Force = False,
    list_: Annotated[bool, typer.Option("--list", help="List the presets.")] = False,
) -> None:
    """Make a workload with the shape of a real trace."""
    from traces.synthetic import PRESETS

    if list_:
        _list_presets()
        return
    if preset is None or out is None:
        what = "a PRESET" if preset is None else "-o OUT"
        raise WorkbenchError(f"{what} is missing; there are {', '.join(PRESETS)}")
    from traces.synthetic import generate as make
    from traces.synthetic import write_preset
    from traces.synthetic.dirty import dirty_files
    from traces.writers.output import STDOUT, check_output, output
    from traces.writers.registry import find_writer

    kind = find_writer(to)
    if preset in PRESETS and PRESETS[preset].make is None:
        given = {"--n": n, "--rate": rate, "--duration": duration, "--max-len": max_len, "--variant": variant}
        used = [name for name, value in given.items() if value is not None]
        used += [name for name, value in (("--len-scale", len_scale), ("--slo-scale", slo_scale)) if value != 1]
        used += ["--to"] if to != "native" else []
        if used:
            raise WorkbenchError(f"preset {preset!r} is always the same rows; leave out {', '.join(used)}")
        if out == STDOUT or out.suffix in (".gz", ".zst", ".zstd"):
            raise WorkbenchError(f"preset {preset!r} is files of broken rows; give -o a plain file name")
        for file in dirty_files(out):
            check_output(file, force=force)
        for written in write_preset(preset, out, seed=seed):
            say(f"{written}: written")
        return
    check_output(out, force=force)
    workload = make(
        preset,
        n=n,
        seed=seed,
        rate=rate,
        duration=duration,
        len_scale=len_scale,
        max_len=max_len,
        slo_scale=slo_scale,
        variant=variant,
    )
    writer = kind()
    with output(out) as target:
        target.write(writer.header())
        for spec in workload.specs:
            if (line := writer.write(spec)) is not None:
                target.write(line)
        if not writer.account.written:
            reasons = ", ".join(writer.account.left_out)
            raise WorkbenchError(f"no row of {preset} can be written as {to}: {reasons}")
    for note in workload.notes:
        say(note)
    _tell(writer.account, to, out)


def _list_presets() -> None:
    from traces.synthetic import PRESETS

    room = max(map(len, PRESETS))
    for preset in PRESETS.values():
        size = f"{preset.n:,} rows" if preset.n else "a file"
        rate = f" at {preset.rate:g}/s" if preset.rate else ", closed loop" if preset.closed_loop else ""
        typer.echo(f"{preset.name:<{room}}  {preset.shows} ({size}{rate})")
        for name, text in preset.variants:
            typer.echo(f"{'':<{room}}    --variant {name}: {text}")


def _refuse_dropped(file: Path, report: Any, reading: Any) -> None:
    if reading.strict and (dropped := sum(report.dropped.values())):
        raise WorkbenchError(f"{file}: {dropped:,} of {report.read:,} rows were dropped (--strict)")


def _tell_rows(done: Any, to: str, out: Path) -> None:
    report = done.report
    for reason, count in report.dropped.most_common():
        say(f"dropped: {count:,} · {reason} ({report.examples[reason][0]})")
    for reason, count in report.clamped.most_common():
        say(f"clamped: {count:,} · {reason}")
    for note in report.notes:
        say(f"note: {note}")
    if done.sorted_in_memory:
        say("note: the rows are not in order of time, so they were sorted in memory")
    if done.untimed:
        say(f"note: {done.untimed:,} rows have no time and come at the start")
    _tell(done.account, to, out)


def _tell(account: Any, to: str, out: Path) -> None:
    for line in account.lines():
        say(f"{to}: {line}")
    say(f"{account.written:,} rows written to {'stdout' if str(out) == '-' else out} ({to})")


def _nothing(file: Path, to: str, done: Any) -> str:
    if not done.report.kept:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in done.report.dropped.most_common())
        return f"{file} holds no good rows{': ' + reasons if reasons else ''}"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in done.account.left_out.most_common())
    return f"no row of {file} can be written as {to}: {reasons}"


def _tokenizer(model: str) -> Any:
    from engine.tokenizer import Tokenizer
    from workbench.commands.model import progress_bar
    from workbench.model_store import resolve

    with progress_bar() as progress:
        source = resolve(model, progress)
    return Tokenizer.bytes() if source.path is None else Tokenizer.from_folder(source.path)


def _counter(model: str) -> Callable[[str | None, Any], int]:
    """Tokens of a prompt or of (role, content) pairs; through the chat template where the model has one."""
    tokenizer = _tokenizer(model)

    def count(prompt: str | None, messages: Any) -> int:
        if messages is None:
            return len(tokenizer.encode(prompt or ""))
        if tokenizer.has_chat_template:
            return len(tokenizer.encode_chat([{"role": role, "content": content} for role, content in messages]))
        return len(tokenizer.encode("\n".join(content for _, content in messages)))

    return count


def _row_measure(model: str | None) -> Callable[[dict[str, Any]], int] | None:
    if model is None:
        return None
    count = _counter(model)
    return lambda row: count(row.get("prompt"), row.get("messages"))


def _spec_measure(model: str | None) -> Callable[[RequestSpec], int] | None:
    if model is None:
        return None
    count = _counter(model)
    return lambda spec: count(spec.prompt, spec.messages)
