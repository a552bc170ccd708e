"""Text to token ids and back, for a model folder or for the built-in byte model.

What: `Tokenizer` (encode, chat, decode, end-of-sequence ids) and, through `detokenizer()`, streaming.
Invariant: one object may be used from any thread; every call into the tokenizers library is behind one
lock, and decoding byte-level text does not go there at all.
Omission: no padding, truncation or batching: requests differ in length and the engine batches tokens.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from engine.chat_template import ChatTemplate
from engine.detokenizer import (
    ONE_PER_BYTE,
    ByteDetokenizer,
    Detokenizer,
    WindowDetokenizer,
    byte_fallback_bytes,
    byte_level_alphabet,
    byte_level_bytes,
)
from engine.errors import ModelError, WorkbenchError
from engine.models.config import read_json, token_ids

__all__ = ["Detokenizer", "Tokenizer"]

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
BYTE_SPECIALS = {256: "<bos>", 257: "<eos>", 258: "<pad>"}


class Tokenizer:
    """Build it with `from_folder` or `bytes`.

    `backend` None means the ids 0..255 are the bytes themselves. `table`, where the vocabulary allows
    it, is every id's bytes; `special` are the ids `skip_special_tokens` leaves out.
    """

    def __init__(
        self,
        backend: Any | None,
        names: Mapping[int, str],
        special: frozenset[int],
        table: Sequence[bytes] | None,
        *,
        errors: str = "replace",
        strip_left: int = 0,
        bos_id: int | None = None,
        eos_ids: frozenset[int] = frozenset(),
        chat_template: ChatTemplate | None = None,
    ) -> None:
        self._backend = backend
        self._names = names
        self._special = special
        self._table = table
        self._errors = errors
        self._strip_left = strip_left
        self._chat_template = chat_template
        self._texts: tuple[dict[int, str], dict[int, str]] = ({}, {})
        """For detokenizers that show special tokens, and that skip them."""
        self._lock = threading.Lock()
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        """Every id generation stops at: the union of `eos_token_id` in config.json and in
        generation_config.json (an integer or a list each, 0 included) and the tokenizer's eos token."""

    @classmethod
    def bytes(cls) -> Tokenizer:
        """The tiny model's: one id a byte, then beginning, end and padding."""
        table = [bytes([b]) for b in range(256)] + [name.encode() for name in BYTE_SPECIALS.values()]
        return cls(None, BYTE_SPECIALS, frozenset(BYTE_SPECIALS), table, bos_id=256, eos_ids=frozenset({257}))

    @classmethod
    def from_folder(cls, path: Path) -> Tokenizer:
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{path} has no tokenizer.json; a model folder needs one")
        try:
            backend = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{file} cannot be read: {error}") from error
        backend.no_truncation()
        backend.no_padding()
        settings = _read_optional(path / "tokenizer_config.json")
        specials = _special_tokens(settings, _read_optional(path / "special_tokens_map.json"))
        names = _names(backend)
        special_texts = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
        kind = json.loads(backend.to_str())["decoder"]
        table, errors, strip_left = _byte_table(kind, names)
        eos = backend.token_to_id(specials["eos_token"]) if "eos_token" in specials else None
        bos = backend.token_to_id(specials["bos_token"]) if "bos_token" in specials else None
        template = _template_source(path, settings)
        return cls(
            backend,
            names,
            frozenset(id_ for id_, name in names.items() if name in special_texts),
            table,
            errors=errors,
            strip_left=strip_left,
            bos_id=bos,
            eos_ids=_eos_ids(path, eos),
            chat_template=ChatTemplate(template, specials) if template is not None else None,
        )

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        return len(self._table) if self._backend is None and self._table else max(self._names) + 1

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text: control and end marks."""
        return self._special

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise WorkbenchError(f"the text holds half of a surrogate pair at {error.start}") from error
        if self._backend is None:
            return [256, *raw] if add_special_tokens else list(raw)
        with self._lock:
            ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def render_chat(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt text, up to where the assistant speaks. Without a template: a plain transcript."""
        if self._chat_template is not None:
            return self._chat_template.render(messages)
        if not messages:
            raise WorkbenchError("a chat needs at least one message")
        lines = [f"{m.get('role', 'user')}: {m.get('content') or ''}\n" for m in messages]
        return "".join(lines) + "assistant:"

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        # A template writes its special tokens itself.
        return self.encode(self.render_chat(messages), add_special_tokens=not self.has_chat_template)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if self._table is None:
            return self._decode(list(ids), skip_special_tokens)
        detokenizer = self.detokenizer(skip_special_tokens)
        return "".join(map(detokenizer.push, ids)) + detokenizer.finish()

    def token_text(self, token_id: int) -> str:
        """One token, for display; bytes that are no text by themselves are shown as `<0xNN>`."""
        if token_id in self._special:
            return self._names[token_id]
        if self._table is None:
            return self._decode([token_id], False)
        if not 0 <= token_id < len(self._table):
            return f"<{token_id}>"
        raw = self._table[token_id]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "".join(chr(b) if 0x20 <= b < 0x7F else f"<0x{b:02X}>" for b in raw)

    def detokenizer(self, skip_special_tokens: bool = True) -> Detokenizer:
        """A new one; one a request, and not shared by threads."""
        skip = self._special if skip_special_tokens else frozenset[int]()
        if self._table is None:
            return WindowDetokenizer(lambda ids: self._decode(ids, skip_special_tokens), skip)
        texts = self._texts[skip_special_tokens]
        return ByteDetokenizer(self._table, skip, self._errors, self._strip_left, texts)

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert self._backend is not None
        with self._lock:
            text: str = self._backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return text


def _names(backend: Any) -> dict[int, str]:
    """Id -> token as spelled in the vocabulary; an added token wins over the model's at the same id."""
    size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    names = ((token_id, backend.id_to_token(token_id)) for token_id in range(size))
    return {token_id: name for token_id, name in names if name is not None}


def _byte_table(decoder: Any, names: Mapping[int, str]) -> tuple[list[bytes] | None, str, int]:
    """(bytes of every id, how to replace broken ones, leading spaces to drop); None for the table where
    the decoder is not one of the two kinds whose tokens stand for fixed bytes."""
    parts = decoder["decoders"] if decoder and decoder["type"] == "Sequence" else [decoder or {"type": None}]
    kinds = [part["type"] for part in parts]
    size = max(names, default=-1) + 1
    if kinds == ["ByteLevel"]:
        alphabet = byte_level_alphabet()
        return [byte_level_bytes(names.get(i, ""), alphabet) for i in range(size)], "replace", 0
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and kinds[3:] in ([], ["Strip"]):
        replace: dict[str, Any] = parts[0]
        strip: dict[str, Any] = parts[3] if len(parts) > 3 else {"content": " ", "start": 0, "stop": 0}
        space = replace["pattern"].get("String")
        if space and replace["content"] == " " and strip["content"] == " " and strip["stop"] == 0:
            table = [byte_fallback_bytes(names.get(i, ""), space) for i in range(size)]
            return table, ONE_PER_BYTE, int(strip["start"])
    return None, "replace", 0


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _special_tokens(*sources: Mapping[str, Any]) -> dict[str, str]:
    """Name -> text, the first source wins; a token is written as a string or as an object with content."""
    found: dict[str, str] = {}
    for source in sources:
        for name in SPECIAL_NAMES:
            value = source.get(name)
            text = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _template_source(path: Path, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, or the template in tokenizer_config.json (alone, or the one named default)."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    value = settings.get("chat_template")
    if isinstance(value, list):
        value = {entry.get("name"): entry.get("template") for entry in value}.get("default")
    return value if isinstance(value, str) else None


def _eos_ids(path: Path, tokenizer_eos: int | None) -> frozenset[int]:
    ids = set() if tokenizer_eos is None else {tokenizer_eos}
    for name in ("config.json", "generation_config.json"):
        ids.update(token_ids(_read_optional(path / name).get("eos_token_id")))
    return frozenset(ids)
