"""When a request ends and what text it had: `Output` over a byte vocabulary."""

from __future__ import annotations

import random

import pytest

from engine.output import Output
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer

EOS = 257


def output(eos: frozenset[int] = frozenset({EOS}), **params: object) -> Output:
    request = Request("r", [1], SamplingParams(**params))  # type: ignore[arg-type]
    return Output(request, Tokenizer.bytes().detokenizer(), eos)


def feed(out: Output, tokens: bytes | list[int]) -> tuple[str, FinishReason | None, int]:
    """(text, reason, tokens taken); the engine stops at the first reason."""
    text = ""
    for taken, token in enumerate(tokens, start=1):
        piece, reason = out.push(token)
        text += piece
        if reason is not None:
            tail, final = out.finish(reason)
            return text + tail, final, taken
    tail, final = out.finish(FinishReason.LENGTH)
    return text + tail, final, len(tokens)


def test_plain() -> None:
    assert feed(output(), b"hello") == ("hello", FinishReason.LENGTH, 5)


def test_end_token_is_not_in_the_text() -> None:
    out = output()
    assert feed(out, [*b"hi", EOS, *b"never"]) == ("hi", FinishReason.STOP, 3)
    assert "257" in out.detail


def test_any_id_of_the_union_ends_it_zero_included() -> None:
    for end in (0, 10, EOS):
        assert feed(output(frozenset({0, 10, EOS})), [*b"hi", end, 65]) == ("hi", FinishReason.STOP, 3)


def test_ignore_eos_ignores_end_ids_but_not_stop_ids() -> None:
    assert feed(output(ignore_eos=True), [65, EOS, 66]) == ("AB", FinishReason.LENGTH, 3)
    assert feed(output(ignore_eos=True, stop_token_ids=(66,)), [65, EOS, 66, 67]) == ("A", FinishReason.STOP, 3)


def test_stop_string_over_several_tokens() -> None:
    out = output(stop=("lo w",))
    assert feed(out, b"hello world") == ("hel", FinishReason.STOP, 7)
    assert out.detail


def test_held_back_text_comes_with_the_end() -> None:
    """A disproved prefix is released at once, a possible one with the end, whatever the end is."""
    out = output(stop=("xyz",))
    assert [out.push(t) for t in b"axy"] == [("a", None), ("", None), ("", None)]
    assert out.push(ord("b")) == ("xyb", None)
    out.push(ord("x"))
    assert out.finish(FinishReason.ABORT) == ("x", FinishReason.ABORT)


def test_end_token_releases_held_text() -> None:
    assert feed(output(stop=("xyz",)), [*b"axy", EOS]) == ("axy", FinishReason.STOP, 4)


def test_broken_character_at_the_end() -> None:
    assert feed(output(), [*b"a", 0xE2, 0x82]) == ("a\ufffd", FinishReason.LENGTH, 3)


def test_stop_found_only_in_the_tail() -> None:
    """The bytes of a broken character become text at the end only, and that text can complete a stop string."""
    assert feed(output(stop=("\ufffd",)), [*b"a", 0xE2]) == ("a", FinishReason.STOP, 2)


def test_a_shorter_stop_decided_at_the_end() -> None:
    """After "ab" the stop "abc" is possible but never comes: "b" it is, and the reason says so."""
    out = output(stop=("b", "abc"))
    assert feed(out, b"xab") == ("xa", FinishReason.STOP, 3)
    assert out.detail == "stop string"


@pytest.mark.parametrize("reason", [FinishReason.ABORT, FinishReason.ERROR])
def test_an_abort_or_error_stays_one(reason: FinishReason) -> None:
    """Even where the held text turns out to hold a stop string."""
    out = output(stop=("b", "abc"))
    for token in b"xab":
        assert out.push(token)[1] is None
    if reason is FinishReason.ERROR:
        out.push(-1)
    assert out.finish(reason) == ("a", reason)
    assert out.detail != "stop string"


def test_unsampled() -> None:
    out = output()
    assert out.push(-1) == ("", FinishReason.ERROR)
    assert "finite" in out.detail


@pytest.mark.parametrize("seed", range(4))
def test_streamed_text_is_the_text_before_the_earliest_stop(seed: int) -> None:
    """Against str.find over the whole decoded text."""
    rng = random.Random(seed)
    for _ in range(300):
        tokens = list("".join(rng.choice("ab🙂é\n") for _ in range(rng.randrange(1, 25))).encode())
        stops = tuple("".join(rng.choice("ab🙂\n") for _ in range(rng.randrange(1, 4))) for _ in range(4))
        text, reason, taken = feed(output(stop=stops), tokens)
        whole = bytes(tokens).decode()
        found = [at for at in (whole.find(stop) for stop in stops) if at >= 0]
        assert text == (whole[: min(found)] if found else whole)
        assert reason is (FinishReason.STOP if found else FinishReason.LENGTH)
        if not found:
            assert taken == len(tokens)
