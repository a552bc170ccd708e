"""A strict parser of Prometheus' text format 0.0.4, written from its description."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,(?:{LABEL}))*)\}})? (\S+)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


class Family(NamedTuple):
    type: str
    help: str
    samples: list[tuple[str, dict[str, str], float]]

    def value(self, **labels: str) -> float:
        (found,) = [value for _, have, value in self.samples if have == labels]
        return found


def parse(text: str) -> dict[str, Family]:
    """Families by name. AssertionError where the text breaks a rule of the format."""
    assert text.endswith("\n") and "\r" not in text
    families: dict[str, Family] = {}
    help_ = name = ""
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({NAME}) (.*)", line):
            name, help_ = match.groups()
            assert name not in families, f"{name} comes twice"
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert match[1] == name, "HELP and TYPE of different families"
            families[name] = Family(match[2], help_, [])
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line!r}"
            family = families[name]
            assert match[1] in [name + suffix for suffix in SUFFIXES[family.type]], f"{match[1]} under {name}"
            labels = {key: _unescape(value) for key, value in re.findall(LABEL, match[2] or "")}
            family.samples.append((match[1], labels, float(match[match.lastindex or 0])))
    for name, family in families.items():
        keys = [(sample, tuple(sorted(labels.items()))) for sample, labels, _ in family.samples]
        assert len(keys) == len(set(keys)), f"{name} has a sample twice"
        if family.type == "counter":
            assert name.endswith("_total") and all(value >= 0 for _, _, value in family.samples)
        if family.type == "histogram":
            _check_histogram(name, family)
    return families


def _unescape(text: str) -> str:
    return re.sub(r'\\([\\"n])', lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def _check_histogram(name: str, family: Family) -> None:
    bounds = [(labels["le"], value) for sample, labels, value in family.samples if sample == f"{name}_bucket"]
    assert bounds[-1][0] == "+Inf", f"{name} has no last bucket"
    limits = [float(bound) for bound, _ in bounds]
    assert limits == sorted(set(limits)), f"the buckets of {name} are not in order"
    counts = [count for _, count in bounds]
    assert counts == sorted(counts), f"the buckets of {name} are not cumulative"
    (count,) = [value for sample, _, value in family.samples if sample == f"{name}_count"]
    (total,) = [value for sample, _, value in family.samples if sample == f"{name}_sum"]
    assert count == counts[-1]
    assert (count == 0) <= (total == 0)
