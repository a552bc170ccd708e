"""Encoding, end-of-sequence ids, display text, and one tokenizer used by many threads."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from engine.errors import ModelError, WorkbenchError
from engine.tokenizer import Tokenizer

CHAT = [{"role": "user", "content": "Hi"}]


def write(folder: Path, name: str, value: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Id 0 is `</s>`, 1 `<|im_end|>`, then the bytes."""
    tokens = ["</s>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(tokens[:2])
    backend.enable_truncation(4)  # must not apply: a prompt is never cut silently
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_bytes_round_trip() -> None:
    tokenizer = Tokenizer.bytes()
    assert tokenizer.encode("é") == [256, 0xC3, 0xA9]
    assert tokenizer.encode("é", add_special_tokens=False) == [0xC3, 0xA9]
    assert tokenizer.decode([256, 0xC3, 0xA9, 257]) == "é"
    assert tokenizer.decode([256, 0xC3], skip_special_tokens=False) == "<bos>\ufffd"
    assert tokenizer.vocab_size == 259
    assert tokenizer.eos_ids == {257}
    assert tokenizer.encode_chat(CHAT) == tokenizer.encode("user: Hi\nassistant:")
    assert not tokenizer.has_chat_template


def test_token_text() -> None:
    tokenizer = Tokenizer.bytes()
    texts = [tokenizer.token_text(i) for i in (65, 0xC3, 257, 999)]
    assert texts == ["A", "<0xC3>", "<eos>", "<999>"]


def test_no_truncation_or_padding(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    assert len(tokenizer.encode("x" * 50)) == 50
    assert len(tokenizer.encode("x")) == 1


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer_config", "expected"),
    [
        ({"eos_token_id": 1}, None, None, {1}),
        ({"eos_token_id": 0}, None, None, {0}),  # zero is an id, not "not set"
        ({"eos_token_id": 0}, {"eos_token_id": [1, 7]}, None, {0, 1, 7}),
        ({}, None, {"eos_token": "<|im_end|>"}, {1}),
        ({}, None, {"eos_token": {"content": "</s>", "lstrip": False}}, {0}),
        ({"eos_token_id": None}, {}, {}, set()),
        ({"eos_token_id": 5}, {"eos_token_id": 6}, {"eos_token": "</s>"}, {0, 5, 6}),
        (None, None, None, set()),
    ],
)
def test_eos_ids(
    folder: Path,
    config: dict[str, Any] | None,
    generation: dict[str, Any] | None,
    tokenizer_config: dict[str, Any] | None,
    expected: set[int],
) -> None:
    files = {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer_config.json": tokenizer_config,
    }
    for name, value in files.items():
        if value is not None:
            write(folder, name, value)
    assert Tokenizer.from_folder(folder).eos_ids == expected


def test_missing_and_broken_files(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(folder / "nowhere")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer.from_folder(folder)


def test_half_a_surrogate_pair(folder: Path) -> None:
    with pytest.raises(WorkbenchError, match="surrogate"):
        Tokenizer.from_folder(folder).encode("ab\ud83d")


def test_template_places(folder: Path) -> None:
    write(folder, "tokenizer_config.json", {"chat_template": "one {{ messages[0].content }}"})
    assert Tokenizer.from_folder(folder).render_chat(CHAT) == "one Hi"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "two"}]
    write(folder, "tokenizer_config.json", {"chat_template": named})
    assert Tokenizer.from_folder(folder).render_chat(CHAT) == "two"
    (folder / "chat_template.jinja").write_text("three {{ eos_token }}")
    write(folder, "tokenizer_config.json", {"chat_template": named, "eos_token": "</s>"})
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.render_chat(CHAT) == "three </s>"
    assert tokenizer.encode_chat(CHAT)[-1] == 0  # special tokens in the prompt are tokens


def test_many_threads(folder: Path) -> None:
    """The library refuses ("Already borrowed") when one object is used at once without a lock."""
    tokenizer = Tokenizer.from_folder(folder)
    texts = [f"text {n} é👩" * (n % 7 + 1) for n in range(64)]
    alone = [tokenizer.encode(text) for text in texts]

    def work(n: int) -> bool:
        ids = tokenizer.encode(texts[n % 64])
        chat = tokenizer.encode_chat([{"role": "user", "content": texts[n % 64]}])
        return ids == alone[n % 64] and tokenizer.decode(ids) == texts[n % 64] and len(chat) > len(ids)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(640)))


@pytest.mark.model
def test_default_model_same_as_transformers(default_model_dir: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(default_model_dir)
    ours = Tokenizer.from_folder(default_model_dir)
    assert ours.eos_ids == {2}
    assert ours.vocab_size == 49152
    for text in (
        "Hello, world! It's 2024, isn't it?\n\n  x = 10_000 # 你好 👩‍👩‍👧",
        "<|im_start|>user\nhi<|im_end|>",
        "",
    ):
        ids = ours.encode(text)
        assert ids == theirs.encode(text)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids) == text
    for digit, token_id in zip("123", ours.encode("123"), strict=True):  # digits stand alone
        assert ours.token_text(token_id) == digit


@pytest.mark.model
def test_default_model_chat_same_as_transformers(default_model_dir: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(default_model_dir)
    ours = Tokenizer.from_folder(default_model_dir)
    chats = [
        CHAT,
        [{"role": "system", "content": "Be brief."}, *CHAT],
        [*CHAT, {"role": "assistant", "content": "  Hello "}, {"role": "user", "content": "12+34?\n"}],
        [{"role": "user", "content": "<b>&amp; 👩‍👩‍👧", "name": None}],
    ]
    for chat in chats:
        expected = theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert ours.encode_chat(chat) == expected


@pytest.mark.model
def test_tokenizer_alone_is_enough(default_model_dir: Path, tmp_path: Path) -> None:
    shutil.copy(default_model_dir / "tokenizer.json", tmp_path)
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert not tokenizer.has_chat_template
    assert tokenizer.render_chat(CHAT) == "user: Hi\nassistant:"
