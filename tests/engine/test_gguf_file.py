"""GGUF files: the same model transformers makes of them, and every file we cannot read refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from engine.errors import ModelError
from engine.models.config import ModelConfig, RopeScaling
from engine.models.folder import write_folder
from engine.models.gguf_file import GLOBAL_NAMES, LAYER_NAMES, GgufFile
from engine.models.tiny import TINY_CONFIG, tiny_weights
from engine.models.weights import load_weights
from engine.tokenizer import Tokenizer

SPACE = "\u2581"


def gguf_name(name: str) -> str:
    for ours, theirs in GLOBAL_NAMES.items():
        if theirs == name:
            return ours
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    short = next(ours for ours, theirs in LAYER_NAMES.items() if theirs == stem)
    return f"blk.{layer}.{short}.{kind}"


def to_pairs(values: np.ndarray, heads: int) -> np.ndarray:
    """The row order llama.cpp stores: (half, pair) of each head to (pair, half)."""
    shaped = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(shaped.swapaxes(1, 2).reshape(values.shape))


def byte_tokenizer(writer: gguf.GGUFWriter) -> None:
    from engine.detokenizer import byte_level_alphabet

    alphabet = {byte: character for character, byte in byte_level_alphabet().items()}
    tokens = [alphabet[byte] for byte in range(256)] + ["<bos>", "<eos>", "<think>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens[0] = "aa"  # byte 0 makes room for a merged token
    writer.add_token_list(tokens)
    writer.add_token_merges(["a a"])
    writer.add_token_types([1] * 256 + [3, 3, 4])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template("{{ messages[0]['content'] }}")


def sentencepiece_tokenizer(writer: gguf.GGUFWriter) -> None:
    pieces = [SPACE, "h", "e", "l", "o", "he", "ll", "llo", "hello", SPACE + "hello", SPACE + "he", "1", "2"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(243)] + pieces
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 246 + [-float(n) for n in range(len(pieces))])
    writer.add_token_types([2, 3, 3] + [6] * 243 + [1] * len(pieces))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def write(
    path: Path,
    kind: Kind = Kind.F32,
    architecture: str = "llama",
    tokenizer: Any = byte_tokenizer,
    drop: tuple[str, ...] = (),
    extra: dict[str, np.ndarray] | None = None,
    settings: Any = lambda writer: None,
) -> Path:
    """The tiny model as llama.cpp would store it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    settings(writer)
    tokenizer(writer)
    tensors = {name: tensor.numpy() for name, tensor in tiny_weights().items() if name not in drop}
    for name, values in tensors.items():
        if "q_proj" in name or "k_proj" in name:
            values = to_pairs(values, 4 if "q_proj" in name else 2)
        packing = Kind.F32 if values.ndim == 1 else kind
        writer.add_tensor(gguf_name(name), gguf.quantize(values, packing), raw_dtype=packing)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def convert(path: Path, folder: Path) -> Path:
    folder.mkdir()
    write_folder(GgufFile(path), folder)
    return folder


def test_plain_floats_come_back_exactly(tmp_path: Path) -> None:
    folder = convert(write(tmp_path / "m.gguf"), tmp_path / "out")
    config = ModelConfig.from_folder(folder)
    assert config == ModelConfig.from_hf(TINY_CONFIG)
    loaded = load_weights(folder, config, torch.float32)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tiny_weights().items())
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Kind.F16, 1e-3),
        (Kind.BF16, 1e-2),
        (Kind.Q8_0, 2e-2),
        (Kind.Q5_1, 0.2),
        (Kind.Q4_0, 0.4),
        (Kind.Q4_1, 0.3),
    ],
)
def test_packings(kind: Kind, error: float, tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "m.gguf", kind))
    assert file.dtype == (torch.float16 if kind is Kind.F16 else torch.bfloat16)
    for name, tensor in file.tensors():
        difference = (tensor.float() - tiny_weights()[name]).abs().max()
        assert difference < error * tiny_weights()[name].abs().max(), name


def test_tied(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "m.gguf", drop=("lm_head.weight",)))
    assert file.config["tie_word_embeddings"] is True
    assert "lm_head.weight" not in file.shapes


def test_byte_level_tokenizer(tmp_path: Path) -> None:
    folder = convert(write(tmp_path / "m.gguf"), tmp_path / "out")
    tokenizer = Tokenizer.from_folder(folder)
    ids = tokenizer.encode("aa <think> 12<eos>é")
    assert ids == [0, 32, 258, 32, 49, 50, 257, 0xC3, 0xA9]
    assert tokenizer.eos_ids == {257} and tokenizer.bos_id == 256
    assert tokenizer.decode(ids) == "aa <think> 12é"
    assert tokenizer.encode_chat([{"role": "user", "content": "<bos>x"}]) == [256, 120]


def test_sentencepiece_tokenizer_same_as_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = write(tmp_path / "m.gguf", tokenizer=sentencepiece_tokenizer)
    ours = Tokenizer.from_folder(convert(path, tmp_path / "out"))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in ("hello", "hello  hello ", "hell o 12", "hé", "olleh", ""):
        ids = ours.encode(text)
        assert ids == theirs.encode(text)
        assert ours.decode(ids) == text
    # Where text starts with a space, transformers adds none and loses that one; SentencePiece adds one.
    assert ours.decode(ours.encode(" hello")) == " hello"


def test_end_of_turn_id_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", settings=lambda w: w.add_eot_token_id(258))
    assert Tokenizer.from_folder(convert(path, tmp_path / "out")).eos_ids == {257, 258}


def test_linear_rope(tmp_path: Path) -> None:
    def settings(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(2.0)

    file = GgufFile(write(tmp_path / "m.gguf", settings=settings))
    assert file.model_config.rope_scaling == RopeScaling("linear", 2.0)


def test_llama3_rope_from_its_factors(tmp_path: Path) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    llama3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3["original_max_position_embeddings"] = 8192
    plain = 1.0 / 10000.0 ** (np.arange(0, 16, 2) / 16)
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, rope_theta=10000.0, rope_scaling=llama3)
    scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].numpy()
    factors = (plain / scaled).astype(np.float32)
    assert len(set(factors.round(3))) > 2  # untouched, stretched and in between
    file = GgufFile(write(tmp_path / "m.gguf", extra={"rope_freqs.weight": factors}))
    assert file.model_config.rope_scaling == RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
    other = np.linspace(1, 9, 8, dtype=np.float32)
    with pytest.raises(ModelError, match="rope_freqs"):
        GgufFile(write(tmp_path / "other.gguf", extra={"rope_freqs.weight": other}))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"architecture": "gptneox"}, "architecture 'gptneox' is not supported"),
        ({"settings": lambda w: w.add_expert_count(8)}, "mixture-of-experts"),
        ({"settings": lambda w: w.add_rope_dimension_count(8)}, "partial rotary"),
        ({"settings": lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN)}, "yarn"),
        ({"settings": lambda w: w.add_uint16("split.count", 3)}, "split"),
        (
            {"extra": {"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}},
            "unknown GGUF tensor blk",
        ),
        ({"drop": ("model.norm.weight",)}, r"lack 1 tensors: model\.norm\.weight"),
        ({"drop": ("model.embed_tokens.weight",)}, "token_embd"),
    ],
)
def test_refused_by_name(arguments: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        GgufFile(write(tmp_path / "m.gguf", **arguments))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "split", "match"),
    [
        ("bert", None, "tokenizer model 'bert'"),
        ("gpt2", "deepseek-coder", "tokenizer split 'deepseek-coder'"),
        ("gpt2", None, "tokenizer split None"),
        ("gpt2", "smollm", "tokenizer is damaged"),  # its merge makes a token it does not have
        ("llama", None, "lists a token twice"),
    ],
)
def test_unknown_tokenizers(model: str, split: str | None, match: str, tmp_path: Path) -> None:
    def tokenizer(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model(model)
        writer.add_token_list([*"abc"] if model == "gpt2" else [*"aba"])
        if split is not None:
            writer.add_tokenizer_pre(split)
            writer.add_token_merges(["a a"])

    with pytest.raises(ModelError, match=match):
        GgufFile(write(tmp_path / "m.gguf", tokenizer=tokenizer)).tokenizer_files()


def test_unknown_packings(tmp_path: Path) -> None:
    """A type the library can store but not unpack, and a type number nobody knows."""
    path = write(tmp_path / "m.gguf", Kind.Q8_0)
    content = path.read_bytes()
    name = b"blk.0.attn_q.weight"
    at = content.index(name) + len(name) + 4 + 16  # past the dimension count and two dimensions
    assert content[at : at + 4] == (8).to_bytes(4, "little")
    for number, match in ((9, "is packed as Q8_1"), (250, "unknown tensor packing")):
        path.write_bytes(content[:at] + number.to_bytes(4, "little") + content[at + 4 :])
        with pytest.raises(ModelError, match=match):
            GgufFile(path)


def test_not_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(ModelError, match="cannot read"):
        GgufFile(path)
    for content in (b"", b"PK\x03\x04 a zip file"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="is not a GGUF file"):
            GgufFile(path)


@pytest.mark.parametrize("part", [0.0002, 0.01, 0.02, 0.5, 0.999])
def test_truncated(part: float, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    content = path.read_bytes()
    path.write_bytes(content[: max(4, int(len(content) * part))])
    with pytest.raises(ModelError, match="is truncated or damaged"):
        GgufFile(path)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_1])
def test_same_tensors_as_transformers(kind: Kind, tmp_path: Path) -> None:
    """Names, row order and unpacking, against transformers' reader of the same file."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = write(tmp_path / "m.gguf", kind)
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in TINY_CONFIG.items() if k != "architectures"}))
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    file = GgufFile(path)
    ours = dict(file.tensors())
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name].to(file.dtype)), name


def test_same_config_as_transformers(tmp_path: Path) -> None:
    from transformers import AutoConfig, LlamaConfig

    path = write(tmp_path / "m.gguf")
    theirs = AutoConfig.from_pretrained(tmp_path, gguf_file=path.name).to_dict()
    ours = LlamaConfig(**GgufFile(path).config).to_dict()
    for key in GgufFile(path).config.keys() - {"dtype", "pad_token_id", "architectures"}:
        same = ours.get(key) == theirs.get(key)
        assert same or ours[key] == pytest.approx(theirs[key], rel=1e-6), key  # 1e-05 through a float32
