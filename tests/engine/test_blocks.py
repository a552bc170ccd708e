"""`BlockPool` against a naive model of SCHEDULER's words: a list for the free queue, a list per cached key."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.blocks import ROOT_KEY, BlockPool, content_key

BLOCKS = 9


class PoolMachine(RuleBasedStateMachine):
    """Takes, shares, releases and registers at random; the model does the same the slow, obvious way."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, caching=True)
        self.queue = list(range(1, BLOCKS))
        self.refs = [1] + [0] * (BLOCKS - 1)
        self.keys: dict[int, bytes] = {}
        self.registered: list[int] = []
        self.tables: dict[str, list[int]] = {}
        self.serial = 0

    @rule(count=st.integers(0, 4), old=st.booleans())
    def take(self, count: int, old: bool) -> None:
        if count > len(self.queue):
            return
        if old and self.tables:
            owner = next(iter(self.tables))
        else:
            self.serial += 1
            owner = f"r{self.serial}"
        expected, self.queue = self.queue[:count], self.queue[count:]
        assert self.pool.take(count, owner) == expected
        for block in expected:
            self.refs[block] = 1
            if self.keys.pop(block, None):
                self.registered.remove(block)
        self.tables.setdefault(owner, []).extend(expected)

    @precondition(lambda self: any(self.tables.values()))
    @rule(data=st.data(), key=st.integers(0, 3))
    def register(self, data: st.DataObject, key: int) -> None:
        held = sorted({b for table in self.tables.values() for b in table} - set(self.keys))
        if held:
            block = data.draw(st.sampled_from(held))
            self.pool.register(block, bytes([key]))
            self.keys[block] = bytes([key])
            self.registered.append(block)

    @rule(key=st.integers(0, 3))
    def hit(self, key: int) -> None:
        expected = next((b for b in self.registered if self.keys[b] == bytes([key])), None)
        assert self.pool.lookup(bytes([key])) == expected
        if expected is not None:
            self.serial += 1
            self.pool.share([expected], f"r{self.serial}")
            self.tables[f"r{self.serial}"] = [expected]
            if self.refs[expected] == 0:
                self.queue.remove(expected)
            self.refs[expected] += 1

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.tables)))
        table = self.tables.pop(owner)
        self.pool.release(table, owner)
        keyless, keyed = [], []
        for block in reversed(table):
            self.refs[block] -= 1
            if not self.refs[block]:
                (keyed if block in self.keys else keyless).append(block)
        self.queue = keyless + self.queue + keyed

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.keys)))
        self.pool.forget(block)
        self.pool.forget(block)
        del self.keys[block]
        self.registered.remove(block)

    @rule()
    def reset(self) -> None:
        idle = len(self.queue) == BLOCKS - 1
        assert self.pool.reset() is idle
        if idle:
            self.keys.clear()
            self.registered.clear()

    @invariant()
    def same(self) -> None:
        self.pool.check(self.tables)
        assert self.pool.free_queue() == self.queue
        assert self.pool.num_free == len(self.queue)
        assert self.pool.ref == self.refs
        assert [self.pool.key[b] for b in range(BLOCKS)] == [self.keys.get(b) for b in range(BLOCKS)]


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_null_block_is_never_given_out() -> None:
    pool = BlockPool(4, caching=True)
    assert pool.take(3, "a") == [1, 2, 3]
    assert pool.num_free == 0
    with pytest.raises(AssertionError):
        pool.take(1, "b")
    with pytest.raises(ValueError, match="null block"):
        BlockPool(1, caching=True)


def test_release_twice_is_caught() -> None:
    pool = BlockPool(4, caching=False)
    table = pool.take(2, "a")
    pool.release(table, "a")
    with pytest.raises(AssertionError, match="twice"):
        pool.release(table, "a")


def test_content_key_stands_for_the_whole_prefix() -> None:
    a, b = content_key(ROOT_KEY, [1, 2]), content_key(ROOT_KEY, [1, 3])
    assert a != b
    assert content_key(a, [7, 8]) != content_key(b, [7, 8])
    assert content_key(a, [7, 8]) == content_key(content_key(ROOT_KEY, [1, 2]), [7, 8])
    assert content_key(ROOT_KEY, [1, 2]) != content_key(ROOT_KEY, [2, 1])
    assert content_key(ROOT_KEY, [258]) != content_key(ROOT_KEY, [2, 1])


def test_changes_tell_the_last_state_once() -> None:
    pool = BlockPool(5, caching=True)
    table = pool.take(2, "a")
    pool.register(table[0], b"k")
    pool.share([table[0]], "b")
    assert sorted(pool.changes()) == [(1, "a", 2, True), (2, "a", 1, False)]
    assert pool.changes() == ()
    pool.release(table, "a")
    assert sorted(pool.changes()) == [(1, "b", 1, True), (2, None, 0, False)]
    pool.release([1], "b")
    assert pool.changes() == ((1, None, 0, True),)


@pytest.mark.parametrize("break_it", ["reference", "queue", "index", "owner"])
def test_check_finds_damage(break_it: str) -> None:
    pool = BlockPool(6, caching=True)
    tables = {"a": pool.take(3, "a")}
    pool.register(1, b"k")
    pool.check(tables)
    if break_it == "reference":
        pool.ref[2] = 2
    elif break_it == "queue":
        pool._next[4] = 4 if pool._next[4] == 0 else 0
    elif break_it == "index":
        pool.key[1] = b"other"
    else:
        pool.owner[3] = "b"
    with pytest.raises(AssertionError):
        pool.check(tables)
