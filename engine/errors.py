"""Errors a person can fix.

What: one base class for mistakes in what the user gave us (a model, a setting, a request).
Invariant: the message is one line that says what is wrong and, where possible, what to do instead;
front ends print it as it is, without a traceback.
Omission: broken invariants of our own code are not here: those are assertions and tracebacks.
"""

from __future__ import annotations


class WorkbenchError(Exception):
    """A mistake the user can fix; `str(error)` is one line, ready to print."""


class ModelError(WorkbenchError):
    """A model that cannot be found, fetched, read or run."""
