"""Scheduling policies by name. `make_policy` also takes an outside one as `module:Class`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType

from engine.errors import ConfigError, PolicyFault
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

_changed: dict[str, int] = {}
"""When the files of imported outside policies were written."""

__all__ = ["POLICIES", "VICTIMS", "Policy", "PolicyEnv", "VictimRule", "fault_of", "faults_of", "make_policy"]


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


def fault_of(name: str, error: Exception) -> PolicyFault | None:
    """What an outside policy raised, and where in its file; None when it did not come from there."""
    module = name.partition(":")[0]
    place = getattr(sys.modules.get(module), "__file__", None)
    at = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
          if frame.filename == place]  # fmt: skip
    if not at or name in POLICIES:
        return None
    return PolicyFault(f"policy {name} failed at {at[-1]}: {type(error).__name__}: {error}")


def _import_newest(name: str) -> ModuleType:
    """Import a module, anew if its file has changed since it was: a person tries an idea, edits it, tries again."""
    known = sys.modules.get(name)
    module = importlib.import_module(name) if known is None else known
    path = getattr(module, "__file__", None)
    changed = os.stat(path).st_mtime_ns if path else 0
    if known is not None and name in _changed and _changed[name] != changed:
        module = importlib.reload(known)
    _changed[name] = changed
    return module


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
        found = getattr(_import_newest(module), attribute)
    except Exception as error:  # whatever an outside module raises while it is imported is its author's to read
        raise ConfigError("policy", f"{name}: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError("policy", f"{name} is not a subclass of engine.policies.Policy")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigError("policy", f"{name} lacks {', '.join(missing)}")
    return found
