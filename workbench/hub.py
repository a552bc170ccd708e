"""Models from the Hugging Face Hub, by id (`org/name`).

What: `fetch` downloads config, weights and tokenizer through the Hub's own client, into its own cache.
Invariant: a model whose config we cannot run is refused before its weights are downloaded, and every
failure of the network or the Hub is one line that says what to do.
Omission: no revisions, no tokens: the client's own settings hold.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelError
from engine.models.config import ModelConfig
from workbench.default_model import Progress

HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]


def fetch(name: str, progress: Progress) -> Path:
    """The model's folder, in the Hub client's own cache."""
    progress(f"asking the Hub for {name}", 0, 0)
    try:
        from huggingface_hub import hf_hub_download, snapshot_download

        # The config first: it is small, and a model we cannot run is refused before gigabytes arrive.
        config = Path(hf_hub_download(name, "config.json"))
        ModelConfig.from_folder(config.parent)
        progress(f"downloading {name}", 0, 0)
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=["*/*"]))
    except ModelError:
        raise
    except Exception as error:  # the client lets errors of several HTTP libraries through
        raise ModelError(f"cannot get {name} from the Hub: {_hub_reason(error)}") from error
    return folder


def _hub_reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "it is gated; accept its terms on its page and log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "no such model, or it is private; folders and .gguf files are given by their path"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return "it has no config.json; only models in Hugging Face format work"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled | ConnectionError):
        return "no network, and it was not downloaded before; use smollm2-135m-instruct or tiny"
    return " ".join(str(error).split()) or type(error).__name__
