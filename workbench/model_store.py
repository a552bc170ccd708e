"""Where models come from, and the cache folder they are kept in.

What: `resolve(model)` turns what a person typed (`--model ...`) into a folder the engine can load,
fetching or converting it the first time; `list_models`, `path` and `remove` manage the cache.
Invariant: a model folder in the cache is complete. It is built in a hidden sibling folder, flushed, and
renamed into place; a run that was killed leaves only a hidden folder, which the next one removes. One
lock a model makes simultaneous runs share one fetch.
Omission: models from the Hub stay in the Hub client's own cache and are not listed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import platformdirs

from engine.errors import ModelError
from workbench import default_model
from workbench.default_model import Progress

try:
    import fcntl
except ImportError:  # Windows: no lock, the first rename wins
    fcntl = None  # type: ignore[assignment]

DEFAULT_MODEL = "smollm2-135m-instruct"
TINY = "tiny"
ALIASES = {"default": DEFAULT_MODEL, "smollm2": DEFAULT_MODEL, DEFAULT_MODEL: DEFAULT_MODEL}
PARTIAL = ".partial-"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class ModelSource:
    name: str
    path: Path | None
    """The model folder; None for the built-in model."""
    kind: Literal["tiny", "folder"]


class CachedModel(NamedTuple):
    name: str
    path: Path
    size: int
    source: str
    licence: str


def _silent(stage: str, done: int, total: int) -> None:
    pass


def models_folder() -> Path:
    root = os.environ.get("WORKBENCH_CACHE") or platformdirs.user_cache_dir("serving-workbench")
    return Path(root).expanduser().absolute() / "models"


def resolve(model: str, progress: Progress = _silent) -> ModelSource:
    """A ready model. Raises `ModelError` with one line that says what to do."""
    text = model.strip()
    lowered = text.lower()
    if lowered == TINY:
        return ModelSource(TINY, None, "tiny")
    if lowered in ALIASES:
        return _folder(DEFAULT_MODEL, _cached(DEFAULT_MODEL, _build_default, progress))
    if _is_name(text) and _complete(models_folder() / text):
        return _folder(text, models_folder() / text)
    local = Path(text).expanduser()
    if lowered.endswith(".gguf"):
        return _convert(local, progress)
    if text and local.is_dir():
        _check_folder(local)
        return _folder(local.resolve().name, local.resolve())
    if HUB_ID.fullmatch(text):
        from workbench import hub

        folder = hub.fetch(text, progress)
        _check_folder(folder)
        return _folder(text, folder)
    raise ModelError(
        f"no model {model!r}: give {DEFAULT_MODEL}, {TINY}, a folder with config.json and safetensors, "
        "a .gguf file, or a Hub id such as org/name"
    )


def list_models() -> list[CachedModel]:
    """The models in the cache, by name."""
    folder = models_folder()
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_describe(entry) for entry in entries if _is_name(entry.name) and _complete(entry)]


def path(name: str) -> Path:
    """The folder of a model that is in the cache."""
    found = models_folder() / ALIASES.get(name.lower(), name)
    if name.lower() == TINY:
        raise ModelError(f"{TINY} is built in and has no folder")
    if not _is_name(name) or not _complete(found):
        raise ModelError(f"no model {name!r} in {models_folder()}; see: workbench model list")
    return found


def remove(name: str) -> None:
    """Delete a model from the cache. Renamed away first, so that a half-deleted one is never found."""
    found = path(name)
    gone = contextlib.suppress(FileNotFoundError)  # another process was first
    with _lock(found.name, _silent), _partial(found.name) as partial, gone:
        found.rename(partial / "removed")


# ---- the cache --------------------------------------------------------------------------


def _cached(name: str, build: Callable[[Path, Progress], None], progress: Progress) -> Path:
    """The cache folder `name`, built by `build(hidden folder, progress)` if it is not there."""
    final = models_folder() / name
    if _complete(final):
        return final
    try:
        models_folder().mkdir(parents=True, exist_ok=True)
        with _lock(name, progress):
            if _complete(final):  # another process built it while we waited
                return final
            _remove_stale(name)
            with _partial(name) as partial:
                shutil.rmtree(final, ignore_errors=True)  # someone deleted files from it by hand
                build(partial, progress)
                _publish(partial / "model", final)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            f"cannot write the model to {models_folder()}: {reason}; "
            f"set WORKBENCH_CACHE to another folder, or use --model {TINY}"
        ) from error
    return final


@contextlib.contextmanager
def _lock(name: str, progress: Progress) -> Iterator[None]:
    """Held by one process at a time; the system lets go of it when the holder dies, however it dies."""
    if fcntl is None:
        yield
        return
    with (models_folder() / f".lock-{name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another workbench to fetch the model", 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _partial(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"{PARTIAL}{name}-", dir=models_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(name: str) -> None:
    """Hidden folders of killed runs. Only safe under the lock: without one they may be in use."""
    if fcntl is not None:
        for folder in models_folder().glob(f"{PARTIAL}{name}-*"):
            shutil.rmtree(folder, ignore_errors=True)


def _publish(built: Path, final: Path) -> None:
    _sync(built)
    try:
        built.rename(final)
    except OSError:
        if not _complete(final):  # otherwise another process was first, and its folder is as good
            raise
    _sync(final.parent)


def _sync(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_model(gguf_path: Path, folder: Path, source: dict[str, str], progress: Progress) -> None:
    from engine.models.folder import write_folder, write_json
    from engine.models.gguf_file import GgufFile

    progress("unpacking", 0, 0)
    opened = GgufFile(gguf_path)
    folder.mkdir()
    write_folder(opened, folder, lambda done, total: progress("unpacking", done, total))
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    write_json(folder / "source.json", {"licence": opened.licence, **source, "sizes": sizes})


def _build_default(partial: Path, progress: Progress) -> None:
    gguf_path, source = default_model.fetch(partial, progress)
    _write_model(gguf_path, partial / "model", source, progress)


def _convert(file: Path, progress: Progress) -> ModelSource:
    if not file.is_file():
        raise ModelError(f"no such file: {file}")
    digest = default_model.sha256(file, progress)  # the key is what is in the file, not what it is called
    source = {"name": file.stem, "source": f"GGUF file {file.name}", "sha256": digest}

    def build(partial: Path, progress: Progress) -> None:
        _write_model(file, partial / "model", source, progress)

    return _folder(file.stem, _cached(f"gguf-{digest[:16]}", build, progress))


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; a model folder needs config.json and safetensors files")
    from engine.models.config import ModelConfig
    from engine.models.weights import weight_files

    ModelConfig.from_folder(folder)
    weight_files(folder)


# ---- small things -----------------------------------------------------------------------------------


def _folder(name: str, path: Path) -> ModelSource:
    return ModelSource(name, path, "folder")


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*", text) is not None


def _complete(folder: Path) -> bool:
    """Whether every file is there in full: sizes are kept in source.json, which is written last."""
    try:
        sizes = json.loads((folder / "source.json").read_text(encoding="utf-8"))["sizes"]
        return bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _describe(folder: Path) -> CachedModel:
    try:
        source = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        source = {}
    size = sum(file.stat().st_size for file in folder.iterdir())
    return CachedModel(folder.name, folder, size, source.get("source", "?"), source.get("licence", "?"))
