"""The command palette's entries: every key of the live screen, by name."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from workbench.screens.keys import KEYS, PALETTE, Key


class LiveCommands(Provider):
    async def discover(self) -> Hits:
        for key in self._keys():
            yield DiscoveryHit(name_of(key), partial(self._run, key), key.word, key.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for key in self._keys():
            name = name_of(key)
            score = max(matcher.match(name), matcher.match(key.help))
            if score > 0:
                yield Hit(score, matcher.highlight(name), partial(self._run, key), key.word, key.help)

    def _keys(self) -> tuple[Key, ...]:
        return (*KEYS, *PALETTE) if self.screen.id == "live" else ()

    async def _run(self, key: Key) -> None:
        await self.screen.run_action(key.action)


def name_of(key: Key) -> str:
    return f"{key.word}  ({key.shown})" if key.shown else key.word
