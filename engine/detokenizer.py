"""Token ids to text, one token at a time.

What: one `Detokenizer` a request; `push` returns the text that has become certain, `finish` the rest.
Invariant: all pieces joined, `finish` included, equal `Tokenizer.decode` of all the ids, and no piece
holds a broken character: at most the bytes of one unfinished character are held back.
Omission: none of these know stop strings (`engine.stop`), end-of-sequence ids or the prompt: a
SentencePiece answer loses the space before its first word, as decoding its ids alone does.

Byte-level and byte-fallback vocabularies are exact: each token stands for fixed bytes, and text is an
incremental UTF-8 decoding of them. Where bytes are not UTF-8, byte-level follows Rust's
`from_utf8_lossy` (one U+FFFD a maximal broken part) and byte fallback writes one U+FFFD a byte; unlike
the tokenizers library it keeps the whole characters next to a broken one, because they were already
shown. Any other vocabulary goes through a window of its own `decode`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
NO_TEXTS: Mapping[int, str] = {}
ONE_PER_BYTE = "workbench_one_replacement_per_byte"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _one_per_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error(ONE_PER_BYTE, _one_per_byte)


class Detokenizer(Protocol):
    plain: Mapping[int, str] = NO_TEXTS
    """Tokens whose text is certain now, whatever came before and comes after: they need not be pushed."""

    def push(self, token_id: int) -> str:
        """The text now certain; empty while a character is unfinished."""

    def finish(self) -> str:
        """Whatever is held back; bytes that never became a character are U+FFFD."""


class ByteDetokenizer:
    """For vocabularies in which every token stands for fixed bytes.

    `strip_left` is how many leading spaces of the whole text belong to the tokenizer, not to the text. `texts` is
    filled with the text of tokens that are whole characters; detokenizers that differ in nothing but the request
    share one.
    """

    def __init__(
        self,
        table: Sequence[bytes],
        skip: Collection[int],
        errors: str = "replace",
        strip_left: int = 0,
        texts: dict[int, str] | None = None,
    ) -> None:
        self._table = table
        self._skip = skip
        self._strip_left = strip_left
        self._texts = {} if texts is None else texts
        self.plain: Mapping[int, str] = NO_TEXTS if strip_left else self._texts
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, token_id: int) -> str:
        if (text := self.plain.get(token_id)) is not None:
            return text
        if token_id in self._skip or not 0 <= token_id < len(self._table):
            return ""
        text = self._strip(self._decoder.decode(self._table[token_id]))
        # Nothing held back and nothing to be dropped: the next token's text hangs on nothing before it.
        clean = not self._strip_left and not self._decoder.getstate()[0]
        if clean and self.plain is self._texts:
            self._texts[token_id] = text
        self.plain = self._texts if clean else NO_TEXTS
        return text

    def finish(self) -> str:
        return self._strip(self._decoder.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        while self._strip_left and text:
            if text[0] != " ":
                self._strip_left = 0
            else:
                text = text[1:]
                self._strip_left -= 1
        return text


class WindowDetokenizer:
    """For other vocabularies: the difference between decoding a short window with and without its end.

    The window starts one visible piece back, because some decoders treat the first token of a text
    differently (they drop its leading space).
    """

    def __init__(self, decode: Callable[[list[int]], str], skip: Collection[int]) -> None:
        self._decode = decode
        self._skip = skip
        self.plain: Mapping[int, str] = NO_TEXTS
        self._context: list[int] = []
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        if token_id in self._skip:  # a skipped token must not become the window's first one
            return ""
        self._pending.append(token_id)
        piece = self._piece()
        if not piece or piece.endswith(REPLACEMENT):
            return ""
        self._context, self._pending = self._pending, []
        return piece

    def finish(self) -> str:
        piece = self._piece() if self._pending else ""
        self._context, self._pending = [], []
        return piece

    def _piece(self) -> str:
        before = self._decode(self._context) if self._context else ""
        return self._decode(self._context + self._pending)[len(before) :]


def byte_level_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's byte-level spelling: printable Latin-1 bytes stand for themselves,
    the others for the characters from U+0100 up, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(0x100 + position): byte for position, byte in enumerate(others)})
    return alphabet


def byte_level_bytes(token: str, alphabet: dict[str, int]) -> bytes:
    """The bytes of a byte-level token; a token with any character outside the alphabet is literal."""
    if all(character in alphabet for character in token):
        return bytes(alphabet[character] for character in token)
    return token.encode()


def byte_fallback_bytes(token: str, space: str) -> bytes:
    """The bytes of a SentencePiece token: `<0xNN>` is one byte, `space` (U+2581) is a space."""
    match = BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(space, " ").encode()
