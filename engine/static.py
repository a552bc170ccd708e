"""`StaticBatch`: the baseline that continuous batching replaced, on the same scheduler, pool and kernels.

A batch is formed of waiting requests, all prompts are read, then all decode until the longest member ends. Slots of
members that ended stay occupied; nobody joins. What a padded batch would add to the shorter prompts is counted, not
computed: the kernels are the paged ones, so a comparison with continuous batching is about scheduling alone.

Invariant: a request joins when the batch is formed or never; decodes wait while a member's prompt is being read.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request, RequestStatus


class StaticBatch:
    def __init__(self) -> None:
        self.members: list[Request] = []
        """By slot, the ended ones included."""

    @property
    def alive(self) -> int:
        """Members that have not ended."""
        return sum(member.status is not RequestStatus.FINISHED for member in self.members)

    def form(self, members: Sequence[Request]) -> None:
        """Start with these members."""
        self.members = list(members)

    def padding(self) -> int:
        """Prompt tokens that padding would add to the shorter members."""
        longest = max((member.num_tokens for member in self.members), default=0)
        return sum(longest - member.num_tokens for member in self.members)

    def leave_out_waiting(self) -> None:
        """Go without the members that have not started yet: there is no room for them."""
        self.members = [member for member in self.members if member.status is not RequestStatus.WAITING]

    def reading(self) -> bool:
        """Whether some prompt is still to be read, so that decodes wait."""
        return any(
            member.status is RequestStatus.WAITING or (member.status is RequestStatus.RUNNING and not member.num_output)
            for member in self.members
        )

    def to_admit(self) -> list[Request]:
        """Members that are not running: to be started, or preempted."""
        idle = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return [member for member in self.members if member.status in idle]
