"""Reasons in kinds."""

from __future__ import annotations

import pytest

from traces.failures import MOST_KINDS, OTHERS, UNTOLD, Reasons, kind_of


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        (
            "the prompt has 4,000 tokens, max_model_len 512 leaves room for 511 and one output",
            "the prompt has N tokens, max_model_len N leaves room for N and one output",
        ),
        ("a request with id 'r17' is already here", "a request with id '...' is already here"),
        ("took 1.25 s\nand more", "took N s"),
        ("it doesn't fit, and won't", "it doesn't fit, and won't"),
        ("", UNTOLD),
        (" \n", UNTOLD),
    ],
)
def test_kind_of(why: str, kind: str) -> None:
    assert kind_of(why) == kind


def test_counts_are_bounded_and_add_up() -> None:
    reasons = Reasons()
    for n in range(MOST_KINDS + 10):
        reasons.add("failed", "x" * n + " broke")
    reasons.add("failed", " broke")
    summary = reasons.summary()
    assert sum(summary["failed"].values()) == MOST_KINDS + 11
    assert summary["failed"][OTHERS] == 10 and next(iter(summary["failed"])) == OTHERS
    assert len(summary["failed"]) == MOST_KINDS + 1 and summary["rejected"] == summary["aborted"] == {}
