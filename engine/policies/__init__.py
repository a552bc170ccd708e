"""Scheduling policies by name. `make_policy` also takes an outside one as `module:Class`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator

from engine.errors import ConfigError
from engine.policies.base import Policy, PolicyEnv
from engine.policies.drr import Drr
from engine.policies.edf import Edf
from engine.policies.fair import Fair
from engine.policies.fcfs import Fcfs
from engine.policies.lcf import Lcf
from engine.policies.lpm import Lpm
from engine.policies.mlfq import Mlfq
from engine.policies.priority import Priority
from engine.policies.rpm import Rpm
from engine.policies.sjf import Sjf
from engine.policies.slack import Slack
from engine.policies.srpt import Srpt
from engine.policies.victims import VICTIMS, VictimRule

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fcfs, Priority, Fair, Drr, Sjf, Srpt, Mlfq, Edf, Slack, Lpm, Lcf, Rpm)
}

__all__ = ["POLICIES", "VICTIMS", "Policy", "PolicyEnv", "VictimRule", "faults_of", "make_policy"]


def make_policy(name: str, env: PolicyEnv) -> Policy:
    """An empty queue of that policy. ConfigError when an outside one cannot be loaded or is none."""
    with faults_of(name):
        return find_policy(name)(env)


@contextlib.contextmanager
def faults_of(name: str) -> Iterator[None]:
    """What an outside policy raises while it takes over is its author's to mend, not a fault of the engine."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if name in POLICIES:
            raise
        raise ConfigError("policy", f"{name}: {type(error).__name__}: {error}") from error


def find_policy(name: str) -> type[Policy]:
    """The class of a policy; `module:Class` is imported, the current folder included."""
    if name in POLICIES:
        return POLICIES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError("policy", f"{name!r} is not one of {', '.join(POLICIES)}, module:Class")
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever an outside module raises while it is imported is its author's to read
        raise ConfigError("policy", f"{name}: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError("policy", f"{name} is not a subclass of engine.policies.Policy")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigError("policy", f"{name} lacks {', '.join(missing)}")
    return found
