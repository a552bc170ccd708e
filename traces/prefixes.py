"""How much of a workload's prompts a prefix cache without end would find again.

A prompt is a chain of pieces: its prefix ids, then tokens of its own. What it shares with prompts before it is the
longest beginning that one of them has too; a cache keeps whole blocks of `block` tokens, so that many are found.

Invariant: rows count in the order given, each sees those before it alone, and work per row is one step a piece,
whatever the lengths (texts and token ids: a step a block).
Left out: answers. An engine caches what it generated too, but no later prompt of a workload of lengths repeats it.
Text is counted as one token for four characters, as in the lengths of the public agent logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from traces.workload import RequestSpec

CHARS_PER_TOKEN = 4


@dataclass(slots=True)
class Reuse:
    """What was found. Shares are 0 where there is nothing to find."""

    block: int
    """Tokens a block."""
    prompts: int = 0
    hits: int = 0
    """Prompts of which at least one block was found."""
    tokens: int = 0
    """Of all prompts."""
    found: int = 0
    """Tokens of them in blocks that were there already."""
    blocks: int = 0
    """Of all prompts, a begun one counts."""

    @property
    def found_blocks(self) -> int:
        return self.found // self.block

    @property
    def share(self) -> float:
        """Of prompt tokens, 0..1."""
        return self.found / self.tokens if self.tokens else 0.0

    @property
    def block_share(self) -> float:
        """Of blocks, 0..1."""
        return self.found_blocks / self.blocks if self.blocks else 0.0


class PrefixIndex:
    """An endless cache, one prompt after the other: `add` gives the tokens found and remembers the prompt."""

    def __init__(self, block: int) -> None:
        if block < 1:
            raise ValueError(f"a block of {block} tokens")
        self.total = Reuse(block)
        self._longest: dict[tuple[int, object], int] = {}
        """Most tokens of a content id seen after a place; 0 is the beginning of all prompts."""
        self._place: dict[tuple[int, object, int], int] = {}
        """After a place, this many tokens of this content id lead to that place."""

    def add(self, spec: RequestSpec) -> int:
        """Tokens of this prompt in whole blocks that some earlier prompt began with."""
        total = self.total
        length = prompt_tokens(spec)
        found = self._shared(_pieces(spec, length, total.block)) // total.block * total.block
        total.prompts += 1
        total.hits += found > 0
        total.tokens += length
        total.found += found
        total.blocks += -(-length // total.block)
        return found

    def _shared(self, pieces: Iterable[tuple[object, int]]) -> int:
        """Tokens this chain has in common with the longest match; the chain is remembered."""
        place, shared, matching = 0, 0, True
        for key, length in pieces:
            longest = self._longest.get((place, key), 0)
            if matching:
                shared += min(length, longest)
                matching = (place, key, length) in self._place
            if length > longest:
                self._longest[place, key] = length
            place = self._place.setdefault((place, key, length), len(self._place) + 1)
        return shared


def reuse(specs: Iterable[RequestSpec], block: int = 16) -> Reuse:
    """Prefix reuse of these requests, in this order, with an endless cache of blocks of `block` tokens."""
    index = PrefixIndex(block)
    for spec in specs:
        index.add(spec)
    return index.total


def prompt_tokens(spec: RequestSpec) -> int:
    """Tokens of the prompt; of text, a quarter of its characters, rounded up."""
    if spec.prompt_len is not None:
        return spec.prompt_len
    if spec.prompt_ids is not None:
        return len(spec.prompt_ids)
    return -(-len(_text(spec)) // CHARS_PER_TOKEN)


def _pieces(spec: RequestSpec, length: int, block: int) -> Iterator[tuple[object, int]]:
    """(what it is, tokens) of the part of a prompt that can be shared."""
    if spec.prompt_len is not None:
        lens = spec.prefix_lens
        for place, key in enumerate(spec.prefix_ids if lens else ()):
            size = min(lens[place] if len(lens) > 1 else lens[0], length)
            if size < 1:
                return
            yield key, size
            length -= size
    elif spec.prompt_ids is not None:
        for start in range(0, length, block):
            part = spec.prompt_ids[start : start + block]
            yield part, len(part)
    else:
        text = _text(spec)
        for start in range(0, length, block):
            piece = text[start * CHARS_PER_TOKEN : (start + block) * CHARS_PER_TOKEN]
            yield hashlib.blake2b(piece.encode(errors="replace"), digest_size=12).digest(), min(block, length - start)


def _text(spec: RequestSpec) -> str:
    if spec.messages is not None:
        return "".join(f"{role}\n{content}\n" for role, content in spec.messages)
    return spec.prompt or ""
