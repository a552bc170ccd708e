"""Prefix reuse against counts made another way: every block of every prompt written out, and the real samples' ids."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.prefixes import PrefixIndex, reuse
from traces.workload import RequestSpec


def lengths(id: str, prompt_len: int, ids: tuple[int, ...] = (), lens: tuple[int, ...] = ()) -> RequestSpec:
    return RequestSpec(id, prompt_len=prompt_len, prefix_ids=ids, prefix_lens=lens)


def test_by_hand() -> None:
    specs = [
        lengths("a", 100, (7,), (64,)),  # nothing before it
        lengths("b", 100, (7,), (64,)),  # 4 blocks of 16
        lengths("c", 70, (7, 8), (64, 16)),  # the same 4; 8 is cut at 6 tokens and new
        lengths("d", 90, (7, 8), (64, 16)),  # 64 + 6 = 70 tokens known: 4 blocks
        lengths("e", 90, (7, 8), (64, 16)),  # 80: 5 blocks
        lengths("f", 90, (8,), (64,)),  # 8 was never at the beginning
    ]
    index = PrefixIndex(16)
    assert [index.add(spec) for spec in specs] == [0, 64, 64, 64, 80, 0]
    total = index.total
    assert (total.prompts, total.hits, total.tokens, total.found) == (6, 4, 540, 272)
    assert total.share == pytest.approx(272 / 540)
    assert (total.found_blocks, total.blocks) == (17, 7 + 7 + 5 + 6 + 6 + 6)


def test_one_length_for_all_ids_and_nothing_at_all() -> None:
    assert reuse([], 16).share == 0.0 == reuse([], 16).block_share
    specs = [lengths("a", 1300, (1, 2, 3), (512,)), lengths("b", 1536, (1, 2, 3), (512,))]
    assert reuse(specs, 512).found == 1024  # the third block of the first was never full
    with pytest.raises(ValueError):
        PrefixIndex(0)


def test_ids_and_text() -> None:
    ids = tuple(range(40))
    specs = [RequestSpec("a", prompt_ids=ids), RequestSpec("b", prompt_ids=(*ids[:33], 9))]
    assert reuse(specs, 16).found == 32
    text = "It was a dark and stormy night. " * 8  # 256 characters, 64 tokens
    specs = [RequestSpec("a", prompt=text), RequestSpec("b", prompt=text[:128] + "x" * 128)]
    assert (reuse(specs, 16).found, reuse(specs, 16).tokens) == (32, 128)
    chat = RequestSpec("c", messages=(("system", "s" * 120), ("user", "hello")))
    assert reuse([chat, chat], 16).found == 32


PROMPTS = st.lists(
    st.tuples(st.integers(1, 90), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), max_size=5)), max_size=8
)


@given(PROMPTS, st.integers(1, 20))
def test_as_if_every_token_were_written_out(prompts: list[tuple[int, list[tuple[int, int]]]], block: int) -> None:
    specs = [
        lengths(f"r{i}", n, tuple(k for k, _ in parts), tuple(size for _, size in parts))
        for i, (n, parts) in enumerate(prompts)
    ]
    seen: set[tuple[object, ...]] = set()
    found = 0
    for spec in specs:
        tokens: list[object] = [
            (key, j) for key, size in zip(spec.prefix_ids, spec.prefix_lens, strict=True) for j in range(size)
        ]
        tokens += [(spec.id, j) for j in range(90)]
        tokens = tokens[: spec.prompt_len]
        ends = range(block, len(tokens) + 1, block)
        hit = [end for end in ends if tuple(tokens[:end]) in seen]
        found += block * len(hit)
        seen.update(tuple(tokens[:end]) for end in ends)
    assert reuse(specs, block).found == found


@pytest.mark.parametrize(
    ("name", "block", "share"),
    [("agent_miniswe_blk64.jsonl.gz", 64, 0.93), ("mooncake_arxiv_slice_74.jsonl", 512, None)],
)
def test_samples_of_real_traces(name: str, block: int, share: float | None) -> None:
    """Their ids are chain ids, so a whole block is found exactly when its id was there before."""
    raw = (Path(__file__).parent / "data" / name).read_bytes()
    rows = [json.loads(line) for line in (gzip.decompress(raw) if name.endswith("gz") else raw).splitlines()]
    specs = [lengths(str(i), row["input_length"], tuple(row["hash_ids"]), (block,)) for i, row in enumerate(rows)]
    seen: set[int] = set()
    found = 0
    for row in rows:
        whole = row["hash_ids"][: row["input_length"] // block]
        found += sum(id in seen for id in whole)
        seen.update(whole)
    total = reuse(specs, block)
    assert total.found_blocks == found > 0
    if share is not None:
        assert total.block_share == pytest.approx(share, abs=0.01)
