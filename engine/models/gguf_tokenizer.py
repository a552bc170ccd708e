"""The tokenizer inside a GGUF file, as Hugging Face tokenizer files.

What: `tokenizer_files` builds tokenizer.json, tokenizer_config.json and the chat template from the
file's tokens, merges or scores, token types and special ids.
Invariant: text is split exactly as the model was trained with, or the file is refused by name; a wrong
split still "works" and quietly makes the model worse.
Omission: byte-level BPE with the splits in `SPLITS`, and SentencePiece BPE; no WordPiece, no Unigram.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engine.errors import ModelError

CONTROL, USER_DEFINED = 3, 4
SPACE = "\u2581"

# How Llama 3 cuts text before merging: contractions, words, up to three digits, punctuation, blanks.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Names of `tokenizer.ggml.pre`, by the way they split.
SPLITS = {
    "gpt-2": "words",
    "smollm": "digits",
    "starcoder": "digits",
    "refact": "digits",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
}


class TokenizerFiles(NamedTuple):
    tokenizer_json: str
    tokenizer_config: dict[str, Any]
    chat_template: str | None


def tokenizer_files(path: Path, get: Callable[..., Any]) -> TokenizerFiles:
    """`get(key[, default])` reads the file's metadata; `path` is for messages."""
    kind, split = get("tokenizer.ggml.model", None), get("tokenizer.ggml.pre", None)
    tokens: list[str] = get("tokenizer.ggml.tokens")
    types: Sequence[int] = get("tokenizer.ggml.token_type", [1] * len(tokens))
    if kind == "gpt2" and split not in SPLITS:
        known = ", ".join(SPLITS)
        raise ModelError(f"{path}: tokenizer split {split!r} is not supported; supported: {known}")
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"{path}: tokenizer model {kind!r} is not supported; supported: gpt2, llama")
    if len(set(tokens)) != len(tokens):
        raise ModelError(f"{path}: the tokenizer lists a token twice")
    try:
        if kind == "gpt2":
            tokenizer = _byte_level(tokens, get("tokenizer.ggml.merges"), SPLITS[split])
        else:
            tokenizer = _sentencepiece(tokens, get)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{path}: the tokenizer is damaged: {error}") from error
    for token, type_ in zip(tokens, types, strict=True):
        if type_ == CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif type_ == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
    special = {
        "bos_token": get("tokenizer.ggml.bos_token_id", None),
        "eos_token": get("tokenizer.ggml.eos_token_id", None),
        "unk_token": get("tokenizer.ggml.unknown_token_id", None),
        "pad_token": get("tokenizer.ggml.padding_token_id", None),
    }
    names = {key: tokens[id_] for key, id_ in special.items() if id_ is not None and id_ < len(tokens)}
    # Files from before the flag existed mean what these vocabularies always did.
    add_bos = get("tokenizer.ggml.add_bos_token", kind == "llama" or split == "llama-bpe")
    if add_bos and "bos_token" in names:
        bos = names["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, special["bos_token"])],
        )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(get("llama.context_length")),
        **names,
    }
    template = get("tokenizer.chat_template", None)
    return TokenizerFiles(tokenizer.to_str(pretty=True), config, template)


def _byte_level(tokens: list[str], merges: list[str], split: str) -> Any:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocab = {token: index for index, token in enumerate(tokens)}
    for left, right in pairs:  # the library panics on some of these instead of raising
        if not {left, right, left + right} <= vocab.keys():
            raise ValueError(f"merge {left!r} {right!r} is not of its tokens")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=split == "llama3"))
    own_regex = split == "llama3"
    by_words = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=not own_regex)
    if split == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_words])
    elif split == "llama3":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated"), by_words]
        )
    else:
        tokenizer.pre_tokenizer = by_words
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(tokens: list[str], get: Callable[..., Any]) -> Any:
    scores: Sequence[float] = get("tokenizer.ggml.scores")
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = get("tokenizer.ggml.unknown_token_id", None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(tokens, scores, vocab),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = bool(get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if prefix else parts)
    return tokenizer


def _merges(tokens: list[str], scores: Sequence[float], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """SentencePiece stores no merges: any cut of a token into two others is one, best score first."""
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                found.append((-score, vocab[left], vocab[right], (left, right)))
    return [pair for *_, pair in sorted(found)]
