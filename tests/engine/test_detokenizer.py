"""Streaming text: every piece certain, all pieces together equal to decoding at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from engine.detokenizer import ByteDetokenizer
from engine.tokenizer import Tokenizer

TEXTS = [
    "plain words, with  double spaces and a trailing one ",
    "  two leading spaces",
    "family 👩‍👩‍👧‍👦, flag 🇵🇱, skin 👍🏽",
    "中文字符和日本語のテキスト",
    "한국어 문장입니다",
    "zażółć gęślą jaźń",
    "e\u0301 a\u0300\u0323 combining marks",
    "tabs\tand\nnewlines\r\n",
    "",
]
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40)
SPACE = "\u2581"


def stream(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> str:
    detokenizer = tokenizer.detokenizer(skip)
    pieces = [detokenizer.push(token_id) for token_id in ids]
    return "".join(pieces) + detokenizer.finish()


def save(folder: Path, backend: tokenizers.Tokenizer) -> Tokenizer:
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Every byte, a few merges that cut characters apart, and added tokens of all kinds."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("ð", "Ł"), ("ðŁ", "ĳ"), ("Ġ", "ð"), ("t", "h"), ("Ã", "©")]
    tokens = alphabet + [left + right for left, right in merges]
    backend = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    backend.add_tokens(["<think>", "two words", "é", "한"])
    return save(tmp_path_factory.mktemp("bytelevel"), backend), backend


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), SPACE, "a", "b", SPACE + "a"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            {t: i for i, t in enumerate(tokens)},
            [(SPACE, "a")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend(SPACE), tokenizers.normalizers.Replace(" ", SPACE)]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    return save(tmp_path_factory.mktemp("sentencepiece"), backend), backend


@pytest.fixture(scope="session")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """A vocabulary without fixed bytes a token: the window's case."""
    tokens = ["<unk>", SPACE, "a", "b", SPACE + "a", SPACE + "b", "é", "한"]
    backend = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [(SPACE, "a"), (SPACE, "b")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["</s>"])
    return save(tmp_path_factory.mktemp("metaspace"), backend), backend


@given(data=st.data(), skip=st.booleans())
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_byte_level_any_ids(
    data: st.DataObject, skip: bool, byte_level: tuple[Tokenizer, tokenizers.Tokenizer]
) -> None:
    ours, backend = byte_level
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size + 2), max_size=24))
    assert stream(ours, ids, skip) == ours.decode(ids, skip) == backend.decode(ids, skip_special_tokens=skip)


@given(text=ANY_TEXT)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_byte_level_any_text(text: str, byte_level: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, backend = byte_level
    ids = ours.encode(text)
    assert stream(ours, ids) == backend.decode(ids)


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_metaspace_any_ids(data: st.DataObject, metaspace: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, backend = metaspace
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size - 1), max_size=24))
    assert stream(ours, ids) == ours.decode(ids) == backend.decode(ids)


@given(text=ANY_TEXT)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sentencepiece_any_text(text: str, sentencepiece: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    ours, backend = sentencepiece
    ids = ours.encode(text)
    assert stream(ours, ids) == ours.decode(ids) == backend.decode(ids)


def test_sentencepiece_broken_bytes(sentencepiece: tuple[Tokenizer, tokenizers.Tokenizer]) -> None:
    """One mark a broken byte, as the library writes it; the whole character beside it stays."""
    ours, backend = sentencepiece
    broken = [3 + 0xE2, 3 + 0x82, 260]
    assert stream(ours, broken) == backend.decode(broken) == "\ufffd\ufffda"
    beside = [3 + 0xC3, 3 + 0xA9, 3 + 0xE2]
    assert stream(ours, beside) == ours.decode(beside) == "é\ufffd"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
def test_no_piece_is_broken_or_late(text: str, kind: str, request: pytest.FixtureRequest) -> None:
    ours, backend = request.getfixturevalue(kind)
    ids = ours.encode(text)
    detokenizer, shown = ours.detokenizer(), ""
    for count, token_id in enumerate(ids, start=1):
        piece = detokenizer.push(token_id)
        assert "\ufffd" not in piece and "<0x" not in piece
        shown += piece
        so_far = backend.decode(ids[:count]).rstrip("\ufffd")
        assert len(shown) >= len(so_far)  # every whole character is out
    assert shown == text
    assert detokenizer.finish() == ""


def test_leading_space_is_stripped_once() -> None:
    detokenizer = ByteDetokenizer([b" ", b" a", b"\xe2"], (), strip_left=1)
    assert [detokenizer.push(i) for i in (0, 0, 1)] == ["", " ", " a"]
    assert detokenizer.push(2) == ""
    assert detokenizer.finish() == "\ufffd"


@pytest.mark.model
def test_default_model_any_ids(default_model_dir: Path) -> None:
    ours = Tokenizer.from_folder(default_model_dir)
    backend = tokenizers.Tokenizer.from_file(str(default_model_dir / "tokenizer.json"))

    @given(st.lists(st.integers(0, ours.vocab_size - 1), max_size=30), st.booleans())
    @settings(max_examples=300, deadline=None)
    def check(ids: list[int], skip: bool) -> None:
        assert stream(ours, ids, skip) == ours.decode(ids, skip) == backend.decode(ids, skip_special_tokens=skip)

    check()


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_default_model_texts(text: str, default_model_dir: Path) -> None:
    ours = Tokenizer.from_folder(default_model_dir)
    assert stream(ours, ours.encode(text)) == text
