"""Prompts of rows: given as ids or text, or made from lengths and prefix ids.

A made prompt begins with the contents of its prefix ids and goes on with tokens of its own. Each content is keyed by
(seed, prefix id, length), the rest by (seed, request id); a token depends on its key and position alone. So requests
that share prefix ids share tokens, and an engine's prefix cache finds them; two lengths of one id (the last block of
a prompt is seldom full) share nothing, as the hash of a block covers all of it.

Invariant: the same in every process and on every machine: keys are BLAKE2b, tokens come from SplitMix64. Special
tokens never appear. Prompts are made when they are wanted, 100,000 tokens in some milliseconds; contents that were
used lately are kept, within a bound.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import WorkbenchError

if TYPE_CHECKING:
    from traces.workload import RequestSpec

KEPT_TOKENS = 1 << 22
"""Of contents that are kept to be used again: 16 MiB."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

Tokens = npt.NDArray[np.int32]


class TextCodec(Protocol):
    """What a workload needs of a tokenizer."""

    @property
    def eos_ids(self) -> Collection[int]: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...


def spans(spec: RequestSpec) -> Iterator[tuple[int, int]]:
    """(prefix id, tokens) from the beginning of a made prompt on, as far as `prompt_len` goes."""
    left = spec.prompt_len or 0
    lens = spec.prefix_lens
    for at, id in enumerate(spec.prefix_ids):
        length = min(lens[0] if len(lens) == 1 else lens[at], left)
        if length <= 0:
            return
        yield id, length
        left -= length


class PromptMaker:
    """Prompts in one tokenizer's tokens."""

    def __init__(self, tokenizer: TextCodec, vocab_size: int, seed: int = 0, chat: bool = True) -> None:
        """chat: whether `messages` rows may be used (the model can talk); they are refused otherwise."""
        self.seed = seed
        self._texts: dict[object, array[int]] = {}
        self._kept: OrderedDict[tuple[int, int], Tokens] = OrderedDict()
        self._kept_tokens = 0
        self._allowed: Tokens | None = None
        self._speak(tokenizer, vocab_size, chat)

    def _speak(self, tokenizer: TextCodec, vocab_size: int, chat: bool) -> None:
        self.tokenizer, self.vocab_size, self._chat = tokenizer, vocab_size, chat

    def switch(self, tokenizer: TextCodec, vocab_size: int, chat: bool = True) -> None:
        """Another model: prompts that are still to be made are made of its tokens."""
        self._speak(tokenizer, vocab_size, chat)
        self._texts.clear()
        self._kept.clear()
        self._kept_tokens, self._allowed = 0, None

    def prompt(self, spec: RequestSpec) -> GivenPrompt | MadePrompt:
        """Raises WorkbenchError when this model cannot take the row."""
        if spec.prompt_ids is not None:
            worst = max(spec.prompt_ids)
            if worst >= self.vocab_size:
                raise WorkbenchError(f"prompt_ids holds {worst}, this model's ids are 0..{self.vocab_size - 1}")
            return GivenPrompt(array("i", spec.prompt_ids))
        if spec.prompt_len is not None:
            if spec.prefix_ids and len(spec.prefix_lens) not in (1, len(spec.prefix_ids)):
                ids, lens = len(spec.prefix_ids), len(spec.prefix_lens)
                raise WorkbenchError(f"{ids} prefix_ids have {lens} prefix_lens; give one for all or one each")
            return MadePrompt(self, spec, spec.prompt_len)
        return GivenPrompt(self._encoded(spec))

    def _encoded(self, spec: RequestSpec) -> array[int]:
        text: object = spec.prompt if spec.messages is None else spec.messages
        known = self._texts.get(text)
        if known is not None:
            return known
        if spec.messages is None:
            ids = self.tokenizer.encode(spec.prompt or "")
        elif self._chat:
            ids = self.tokenizer.encode_chat([{"role": role, "content": content} for role, content in spec.messages])
        else:
            raise WorkbenchError("messages need a model with a chat template; give a prompt instead")
        if not ids:
            raise WorkbenchError("the prompt is empty once encoded")
        self._texts[text] = array("i", ids)
        return self._texts[text]

    # ---- making -----------------------------------------------------------------------------------

    def make(self, spec: RequestSpec, length: int) -> list[int]:
        """The first `length` tokens of a made prompt."""
        parts = []
        left = length
        for id, count in spans(spec):
            if left <= 0:
                break
            parts.append(self._content(id, count)[:left])
            left -= count
        if left > 0:
            parts.append(self._tokens(f"tail\0{spec.id}", left))
        made: list[int] = (parts[0] if len(parts) == 1 else np.concatenate(parts)).tolist()
        return made

    def _content(self, id: int, length: int) -> Tokens:
        key = id, length
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        made = self._tokens(f"prefix\0{id}\0{length}", length)
        if length <= KEPT_TOKENS:
            self._kept[key] = made
            self._kept_tokens += length
            while self._kept_tokens > KEPT_TOKENS:
                (_, old), _ = self._kept.popitem(last=False)
                self._kept_tokens -= old
        return made

    def _tokens(self, name: str, length: int) -> Tokens:
        if self._allowed is None:
            self._allowed = _plain_ids(self.tokenizer, self.vocab_size)
        key = hashlib.blake2b(f"{self.seed}\0{name}".encode(), digest_size=8).digest()
        state = np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN + np.uint64(int.from_bytes(key, "big"))
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        state ^= state >> np.uint64(31)
        tokens: Tokens = self._allowed[state % np.uint64(len(self._allowed))]
        return tokens


class GivenPrompt:
    """Ids that are known: four bytes each until a request has them."""

    def __init__(self, known: array[int]) -> None:
        self._known = known

    def __len__(self) -> int:
        return len(self._known)

    def ids(self) -> list[int]:
        return self._known.tolist()

    def cut(self, length: int) -> GivenPrompt:
        return GivenPrompt(self._known[:length])


class MadePrompt:
    """Nothing but how to make it."""

    def __init__(self, maker: PromptMaker, spec: RequestSpec, length: int) -> None:
        self._maker, self._spec, self._length = maker, spec, length

    def __len__(self) -> int:
        return self._length

    def ids(self) -> list[int]:
        return self._maker.make(self._spec, self._length)

    def cut(self, length: int) -> MadePrompt:
        """Its first tokens stay what they were."""
        return MadePrompt(self._maker, self._spec, min(length, self._length))


def _plain_ids(tokenizer: TextCodec, vocab_size: int) -> Tokens:
    """Ids that are ordinary text: a made prompt must not contain an end mark or a chat control token."""
    special = set(tokenizer.eos_ids) | set(getattr(tokenizer, "special_ids", ()))
    return np.array([id for id in range(vocab_size) if id not in special], np.int32)
