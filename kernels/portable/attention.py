"""Paged attention with batched torch operations, on any device.

Sequences with one new token are grouped by context length, rounded up (`_padded`), and each group is one
gather and two batched products; a sequence with more new tokens is one call of torch's fused attention. How the
batch falls into groups is worked out once an iteration (`plan`), not once a layer.

A sequence's group and padded length depend on its own context alone, so in float32 its numbers do not move with
its neighbours.

Slots past a sequence's end never count, whatever they hold: a weight of 0 would still carry over a NaN that another
request left in a block. So padding repeats the sequence's own first block, and the rest of its last block is zeroed
after the gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernels.paged import PagedBatch

SHORTEST = 64
"""Decode contexts are padded to at least this many tokens: fewer groups, and the waste is small."""


@dataclass(slots=True)
class _Decodes:
    rows: torch.Tensor
    """[G] int64: packed token index of each sequence."""
    blocks: torch.Tensor
    """[kv_heads * G * padded blocks] int64, see `_flat`."""
    bias: torch.Tensor
    """[G, 1, padded tokens] float32: 0 on known tokens, -inf beyond."""
    stale: torch.Tensor
    """Which of the G * padded tokens lie past their sequence's end in a block that is not full."""


@dataclass(slots=True)
class _Chunk:
    first: int
    last: int
    blocks: torch.Tensor
    bias: torch.Tensor
    """[groups * new tokens, context] in the model's dtype: 0 or -inf (causal)."""
    known: int
    """Tokens of the context that are the sequence's; the rest of its last block is not."""


@dataclass(slots=True)
class AttentionPlan:
    decodes: list[_Decodes]
    chunks: list[_Chunk]


def plan(batch: PagedBatch, k_cache: torch.Tensor, groups: int, dtype: torch.dtype) -> AttentionPlan:
    """Sort the sequences of a batch into decode groups and chunks.

    `k_cache` is any layer's (only its shape matters); `groups` = query heads a KV head.
    """
    size, device = batch.block_size, batch.tables.device
    by_length: dict[int, list[int]] = {}
    chunks = []
    for b, start in enumerate(batch.starts):
        first, last = batch.offsets[b], batch.offsets[b + 1]
        if last - first == 1:
            by_length.setdefault(-(-_padded(start + 1) // size), []).append(b)
            continue
        used = -(-(start + last - first) // size)
        columns = torch.arange(used * size, device=device)
        rows = torch.arange(start, start + last - first, device=device)
        bias = torch.zeros(len(rows), len(columns), dtype=dtype, device=device)
        bias.masked_fill_(columns[None, :] > rows[:, None], float("-inf"))
        blocks = _flat(batch.tables[b, :used], k_cache)
        chunks.append(_Chunk(first, last, blocks, bias.repeat(groups, 1), start + last - first))
    decodes = [_plan_decodes(batch, k_cache, members, count) for count, members in sorted(by_length.items())]
    return AttentionPlan(decodes, chunks)


def _padded(known: int) -> int:
    """Context length of the group for `known` tokens: 64, 96, 128, 192, 256, 384 ...: at most half is padding."""
    power = 1 << (known - 1).bit_length()
    return max(SHORTEST, power * 3 // 4 if known <= power * 3 // 4 else power)


def _plan_decodes(batch: PagedBatch, k_cache: torch.Tensor, members: list[int], count: int) -> _Decodes:
    """The sequences `members`, all padded to `count` blocks."""
    size, device = batch.block_size, batch.tables.device
    known = torch.tensor([batch.starts[b] + 1 for b in members])[:, None]
    used = -(-known // size)
    at = torch.arange(count * size)[None, :]
    # Where the first block is also the last, its repetitions have the same stale slots.
    stale = ((at >= known) & ((at < used * size) | (used == 1))).flatten().nonzero().squeeze(1)
    bias = torch.zeros(len(members), 1, count * size).masked_fill_((at >= known)[:, None], float("-inf"))
    own = batch.tables[torch.tensor(members, device=device)]
    tables = own[:, :1].repeat(1, count)
    width = min(count, own.shape[1])
    inside = torch.arange(width)[None, :] < used
    tables[:, :width] = torch.where(inside.to(device), own[:, :width], own[:, :1])
    rows = torch.tensor([batch.offsets[b] for b in members], device=device)
    return _Decodes(rows, _flat(tables.flatten(), k_cache), bias.to(device), stale.to(device))


def attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: AttentionPlan, scale: float
) -> torch.Tensor:
    """As `reference.attention`, over one layer's cache."""
    out = torch.zeros_like(q)
    for group in plan.decodes:
        _decode(q, k_cache, v_cache, group, scale, out)
    for chunk in plan.chunks:
        _prefill(q, k_cache, v_cache, chunk, scale, out)
    return out


def _flat(blocks: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Blocks of every KV head, as rows of a cache seen as [kv_heads * num_blocks, block]: gathering rows is fastest."""
    kv_heads, num_blocks = cache.shape[:2]
    return (torch.arange(kv_heads, device=blocks.device)[:, None] * num_blocks + blocks).flatten()


def _gather(cache: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[len(rows), block_size * head_dim] of the named rows, head after head."""
    kv_heads, num_blocks, size, dim = cache.shape
    return cache.view(kv_heads * num_blocks, size * dim).index_select(0, rows)


def _decode(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, group: _Decodes, scale: float, out: torch.Tensor
) -> None:
    kv_heads, dim = k_cache.shape[0], k_cache.shape[3]
    members, _, tokens = group.bias.shape
    queries = q.index_select(0, group.rows).view(members, kv_heads, -1, dim).transpose(0, 1)
    keys = _gather(k_cache, group.blocks).view(kv_heads * members, tokens, dim)
    values = _gather(v_cache, group.blocks).view(kv_heads * members, tokens, dim)
    for gathered in (keys, values):
        gathered.view(kv_heads, members * tokens, dim).index_fill_(1, group.stale, 0)
    scores = torch.bmm(queries.reshape(kv_heads * members, -1, dim), keys.transpose(1, 2))
    scores = scores.view(kv_heads, members, -1, tokens).float().mul_(scale).add_(group.bias)
    weights = scores.softmax(-1).to(q.dtype).view(kv_heads * members, -1, tokens)
    result = torch.bmm(weights, values).view(kv_heads, members, -1, dim).transpose(0, 1)
    out.index_copy_(0, group.rows, result.reshape(members, -1, dim))


def _prefill(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, chunk: _Chunk, scale: float, out: torch.Tensor
) -> None:
    kv_heads, dim = k_cache.shape[0], k_cache.shape[3]
    count = chunk.last - chunk.first
    # The query heads of a KV head become rows of one problem: nothing is copied to match the head counts.
    queries = q[chunk.first : chunk.last].view(count, kv_heads, -1, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)
    keys = _gather(k_cache, chunk.blocks).view(kv_heads, -1, dim)
    values = _gather(v_cache, chunk.blocks).view(kv_heads, -1, dim)
    keys[:, chunk.known :] = values[:, chunk.known :] = 0
    result = F.scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=chunk.bias, scale=scale)
    result = result.view(kv_heads, -1, count, dim).permute(2, 0, 1, 3)
    out[chunk.first : chunk.last] = result.reshape(count, -1, dim)
