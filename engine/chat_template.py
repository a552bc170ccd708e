"""Chat messages to one prompt string, through the model's own Jinja template.

What: `ChatTemplate(source, special_tokens).render(messages)`, the prompt up to the assistant's turn.
Invariant: the same string transformers' `apply_chat_template(..., add_generation_prompt=True)` gives;
a template's refusal reaches the user in the template's own words.
Omission: no tools, documents or continued final message: the engine has no use for them yet.

Templates are code from a download: they run in Jinja's immutable sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import WorkbenchError


class GenerationBlock(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it is only its contents."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """`special_tokens` are the names a template may use: bos_token, eos_token and so on."""
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._template: jinja2.Template | None = None

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        if not messages:
            raise WorkbenchError("a chat needs at least one message")
        # A key with no value is a missing key: templates print "None" otherwise.
        cleaned = [{key: value for key, value in m.items() if value is not None} for m in messages]
        try:
            if self._template is None:
                self._template = _environment().from_string(self.source)
            return self._template.render(
                messages=cleaned,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except jinja2.TemplateSyntaxError as error:
            raise WorkbenchError(f"the model's chat template is broken: {error}") from error
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise WorkbenchError(f"the model's chat template refused the messages: {error}") from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _tojson  # jinja2's own escapes HTML characters
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
