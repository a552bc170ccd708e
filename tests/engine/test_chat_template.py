"""Chat templates: the same string as transformers, the template's own words when it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from engine.chat_template import ChatTemplate
from engine.errors import WorkbenchError

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "<b>\n"},
    {"role": "user", "content": "  hi & bye ", "name": None},
    {"role": "assistant", "content": "é", "tool_calls": [{"id": 1, "x": "<'>"}]},
]
TEMPLATES = [
    "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content | trim }}|{% endif %}\n{% endfor %}",
    "{{ bos_token }}{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m }}{% endfor %}",
    "{{ messages | tojson }}{{ messages[2].tool_calls | tojson(indent=2) }}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{{ strftime_now('%Y') }}{{ dict(a=1) | tojson }}",
    "{{ tools is none }}{{ documents is none }}{{ messages[1].name is defined }}",
    "{% if add_generation_prompt %}go{% endif %}{{ unknown_name }}",
    "{{ messages[0].content.split('b')[0] }}{{ messages[1]['content'][::-1] }}",
]


@pytest.mark.parametrize("source", TEMPLATES)
def test_same_as_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

    expected, _ = render_jinja_template(
        conversations=[_normalize_chat_messages(CHAT)],
        chat_template=source,
        add_generation_prompt=True,
        bos_token="<s>",
    )
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(CHAT) == expected[0]


def test_refusal_in_the_templates_words() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    with pytest.raises(WorkbenchError, match="System role not supported"):
        ChatTemplate(source, {}).render(CHAT)


@pytest.mark.parametrize(
    ("source", "messages", "match"),
    [
        ("{% for %}", CHAT, "broken"),
        ("{{ 'a' + messages[0].content }}", [{"role": "user", "content": [{"type": "text"}]}], "refused"),
        ("{{ 'a' + messages[0].content }}", [{"role": "user"}], "refused"),
        ("{{ 1 // 0 }}", CHAT, "refused"),
        ("x", [], "at least one message"),
    ],
)
def test_one_line_errors(source: str, messages: list[dict[str, Any]], match: str) -> None:
    with pytest.raises(WorkbenchError, match=match) as caught:
        ChatTemplate(source, {}).render(messages)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ raise_exception.__globals__.x }}"],
)
def test_templates_are_sandboxed(source: str) -> None:
    with pytest.raises(WorkbenchError):
        ChatTemplate(source, {}).render(CHAT)
