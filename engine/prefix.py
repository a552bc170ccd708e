"""What the prefix cache holds of a request: keys of its full blocks, hits, registration.

A key stands for all tokens up to its block's end. Blocks are registered when they are scheduled, before the model has
filled them, as vLLM does: within an iteration a layer's K/V of the whole batch is written before its attention reads.
"""

from __future__ import annotations

from engine.blocks import ROOT_KEY, BlockPool, content_key
from engine.request import Request


def lookup(pool: BlockPool, request: Request, block_size: int, upto: int) -> list[int]:
    """Cached blocks for the leading full blocks within the first `upto` known tokens, up to the first miss."""
    hits: list[int] = []
    if pool.caching:
        for index in range(upto // block_size):
            block = pool.lookup(_key(request, index, block_size))
            if block is None:
                break
            hits.append(block)
    return hits


def register(pool: BlockPool, request: Request, block_size: int, upto: int) -> None:
    """List the full blocks within the first `upto` tokens that are not listed yet."""
    full, table, keys = upto // block_size, request.block_table, request.block_keys
    for index in range(request.num_registered, full):
        pool.register(table[index], keys[index] if index < len(keys) else _key(request, index, block_size))
        request.num_registered = index + 1


def _key(request: Request, index: int, block_size: int) -> bytes:
    keys = request.block_keys
    while len(keys) <= index:
        at = len(keys) * block_size
        keys.append(content_key(keys[-1] if keys else ROOT_KEY, request.token_ids[at : at + block_size]))
    return keys[index]
