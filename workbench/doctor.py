"""`workbench doctor`: what this machine has, and what to do about each problem.

Each check is a function that yields findings; a check that breaks is itself a finding. Exit code 1 when something
fails that the workbench cannot do without, else 0. Nothing is changed, nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import typer

from workbench.say import plain

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "bf16")
GEMM = 512
NEED_MEMORY = 1 << 30
NEED_DISK = 1 << 30
NEED_SIZE = (80, 24)


class Level(StrEnum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Finding(NamedTuple):
    level: Level
    name: str
    text: str
    fix: str = ""
    """What to do about it."""


def _python() -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable}) on {platform.system()} {platform.machine()}"
    yield Finding(Level.OK, "python", text)


def _cpu() -> Iterator[Finding]:
    model, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shown = " ".join(flag for flag in CPU_FLAGS if flag in flags) or "no vector flags known"
    yield Finding(Level.OK, "cpu", f"{model}, {cores} cores usable, {shown}")


def _memory() -> Iterator[Finding]:
    info = Path("/proc/meminfo")
    if not info.is_file():
        yield Finding(Level.OK, "memory", "not known on this system")
        return
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in info.read_text().splitlines() if ":" in line}
    free = sizes["MemAvailable"]
    text = f"{_gb(free)} of {_gb(sizes['MemTotal'])} free"
    if free < NEED_MEMORY:
        yield Finding(
            Level.WARN, "memory", text, "the default model needs about 1 GB; close something or use --model tiny"
        )
    else:
        yield Finding(Level.OK, "memory", text)


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except Exception as problem:
        yield Finding(Level.FAIL, "torch", f"cannot be imported: {problem}", "run: make clean run")
        return
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield Finding(Level.OK, "torch", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        yield Finding(Level.OK, "device", f"cuda: {name}, {_gb(free)} of {_gb(total)} free")
    elif torch.version.cuda:
        yield Finding(
            Level.WARN, "device", "cpu; torch is a CUDA build but sees no GPU", "check nvidia-smi, or use --device cpu"
        )
    else:
        yield Finding(Level.OK, "device", "cpu")
    yield _bf16(torch)
    yield _triton(torch)


def _bf16(torch: Any) -> Finding:
    """Time of a small matrix product in both number formats, best of a few."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    times = {}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(GEMM, GEMM, dtype=dtype, device=device)
        best = float("inf")
        stop = time.perf_counter() + 0.3
        for _ in range(30):
            start = time.perf_counter()
            b = a @ a
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
            if time.perf_counter() > stop:
                break
        times[dtype] = best
        del b
    speed = {dtype: 2 * GEMM**3 / seconds / 1e9 for dtype, seconds in times.items()}
    full, half = speed[torch.float32], speed[torch.bfloat16]
    text = f"bfloat16 {half:.0f} GFLOP/s, float32 {full:.0f} GFLOP/s in a {GEMM}x{GEMM} product on {device}"
    if half < 0.7 * full:
        return Finding(Level.WARN, "bf16", text, "bfloat16 is slower here; --dtype float32 may be faster")
    return Finding(Level.OK, "bf16", text)


def _triton(torch: Any) -> Finding:
    if importlib.util.find_spec("triton") is None:
        if torch.cuda.is_available():
            return Finding(
                Level.WARN, "triton", "not installed", "GPU kernels need it: pip install 'serving-workbench[gpu]'"
            )
        return Finding(Level.OK, "triton", "not installed; only GPUs use it")
    import triton

    if not torch.cuda.is_available():
        return Finding(Level.OK, "triton", f"{triton.__version__}, idle without a GPU")
    return Finding(Level.OK, "triton", f"{triton.__version__}")


def _terminal() -> Iterator[Finding]:
    term = os.environ.get("TERM", "")
    outside = [name for number, name in enumerate(("stdin", "stdout", "stderr")) if not os.isatty(number)]
    if outside:
        text = f"{', '.join(outside)} not a terminal"
        yield Finding(
            Level.WARN, "terminal", text, "the live screen needs all three; without: workbench run --headless"
        )
    else:
        width, height = os.get_terminal_size(2)
        text = f"{width}x{height}, TERM={term or 'unset'}"
        if term in ("", "dumb"):
            yield Finding(Level.WARN, "terminal", text, "set TERM (xterm-256color), or use: workbench run --headless")
        elif width < NEED_SIZE[0] or height < NEED_SIZE[1]:
            yield Finding(Level.WARN, "terminal", text, "make it at least 80x24; 120x40 shows everything")
        else:
            yield Finding(Level.OK, "terminal", text)
    if os.environ.get("NO_COLOR"):
        yield Finding(Level.OK, "colours", "none (NO_COLOR is set); the screen can be read without")
    elif os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        yield Finding(Level.OK, "colours", "24 bit")
    elif "256" in term:
        fix = "if the terminal can do 24 bit: export COLORTERM=truecolor"
        yield Finding(Level.OK, "colours", "256", fix)
    else:
        yield Finding(Level.WARN, "colours", "16 or fewer", "TERM=xterm-256color if the terminal can; g shows without")
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        yield Finding(
            Level.WARN, "encoding", sys.stdout.encoding, "set a UTF-8 locale, for example: export LC_ALL=C.UTF-8"
        )


def _folders() -> Iterator[Finding]:
    from workbench.log import log_path
    from workbench.model_store import models_folder

    for name, folder, env, need in (
        ("cache", models_folder(), "WORKBENCH_CACHE", NEED_DISK),
        ("log", log_path().parent, "WORKBENCH_LOG", 1 << 20),
    ):
        there = folder
        while not there.exists() and there != there.parent:
            there = there.parent
        free = shutil.disk_usage(there).free
        text = f"{folder}, {_gb(free)} free"
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            level = Level.FAIL if name == "cache" else Level.WARN
            yield Finding(level, name, f"{text}, not writable", f"make it writable, or set {env} to another place")
        elif free < need:
            yield Finding(
                Level.WARN, name, text, f"make room (1 GB for the default model), or set {env} to another place"
            )
        else:
            yield Finding(Level.OK, name, text)


def _model() -> Iterator[Finding]:
    from workbench.model_store import DEFAULT_MODEL, list_models

    models = list_models()
    names = [model.name for model in models]
    if DEFAULT_MODEL in names:
        yield Finding(Level.OK, "model", ", ".join(names))
    else:
        has = f"; there is {', '.join(names)}" if names else ""
        yield Finding(
            Level.WARN,
            "model",
            f"{DEFAULT_MODEL} is not fetched yet{has}",
            "workbench model get fetches it (94 MB); --model tiny needs none",
        )


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _cpu, _memory, _torch, _terminal, _folders, _model)


def examine() -> list[Finding]:
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check()
        except Exception as problem:
            name = check.__name__.lstrip("_")
            findings.append(Finding(Level.WARN, name, f"could not be examined: {type(problem).__name__}: {problem}"))
    return findings


def run_doctor(*, as_json: bool = False) -> int:
    findings = examine()
    worst = Level.OK
    for level in (Level.WARN, Level.FAIL):
        if any(finding.level is level for finding in findings):
            worst = level
    if as_json:
        typer.echo(json.dumps({"status": worst, "checks": [finding._asdict() for finding in findings]}))
    else:
        for level, name, text, fix in findings:
            typer.echo(f"{level:<4}  {name:<9} {plain(text)}")
            if fix:
                typer.echo(f"      {'':<9} -> {plain(fix)}")
    return 1 if worst is Level.FAIL else 0


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
