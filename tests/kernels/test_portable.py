"""The portable kernels against `kernels.reference`, and that against textbook formulas, over random shapes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch

from kernels import api, reference
from kernels.paged import PagedBatch, PagedKV

FP32_BOUND = 2e-6
"""Largest difference in float32 for outputs of size about 1: some 20 units in the last place."""
BF16_BOUND = 3e-2
"""In bfloat16, eight bits of mantissa: the reference computes in float32 and rounds once, the portable one rounds
scores and weights on the way."""


def bound(dtype: torch.dtype) -> float:
    return FP32_BOUND if dtype is torch.float32 else BF16_BOUND


@dataclass
class Case:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    batch: PagedBatch


def make_case(
    seed: int, dtype: torch.dtype, kv_heads: int, groups: int, dim: int, size: int, shapes: list[tuple[int, int]],
    padding: int = 0, poison: float | None = None,
) -> Case:  # fmt: skip
    """A batch of (tokens cached before, new tokens) sequences over shuffled blocks of a random cache.

    `poison` fills every slot that holds no token of the batch, the null block included.
    """
    rng = torch.Generator().manual_seed(seed)
    shuffle = random.Random(seed)
    needs = [-(-(start + count) // size) for start, count in shapes]
    num_blocks = sum(needs) + 4
    numbers = list(range(1, num_blocks))
    shuffle.shuffle(numbers)
    tables = torch.zeros(len(shapes), max(needs) + shuffle.randrange(3), dtype=torch.int64)
    offsets, positions, slots, live = [0], [], [], set()
    for row, ((start, count), need) in enumerate(zip(shapes, needs, strict=True)):
        blocks = [numbers.pop() for _ in range(need)]
        tables[row, :need] = torch.tensor(blocks)
        at = [blocks[p // size] * size + p % size for p in range(start + count)]
        live.update(at)
        positions += range(start, start + count)
        slots += at[start:]
        offsets.append(offsets[-1] + count)
    positions += [0] * padding
    slots += [0] * padding
    k = torch.randn(kv_heads, num_blocks, size, dim, generator=rng).to(dtype)
    v = torch.randn(kv_heads, num_blocks, size, dim, generator=rng).to(dtype)
    if poison is not None:
        dead = torch.tensor(sorted(set(range(num_blocks * size)) - live))
        k.view(kv_heads, -1, dim)[:, dead] = poison
        v.view(kv_heads, -1, dim)[:, dead] = poison
    q = torch.randn(len(positions), kv_heads * groups, dim, generator=rng).to(dtype)
    batch = PagedBatch(
        offsets, [start for start, _ in shapes], tables, torch.tensor(positions), torch.tensor(slots), size
    )
    return Case(q, k, v, batch)


def attend(case: Case) -> torch.Tensor:
    plan = api.plan_attention(case.batch, case.k, case.q.shape[1] // case.k.shape[0], case.q.dtype)
    return api.attention(case.q, case.k, case.v, plan, case.q.shape[2] ** -0.5)


def random_shapes(rng: random.Random, size: int) -> list[tuple[int, int]]:
    """Chunks that begin, chunks that continue and decodes, at and around block borders."""
    edges = [0, 1, size - 1, size, size + 1, 2 * size, 63, 64, 65, 130]
    shapes = []
    for _ in range(rng.randrange(1, 8)):
        start = rng.choice(edges)
        count = 1 if rng.random() < 0.5 else rng.randrange(2, 20)
        shapes.append((start, count))
    return shapes


GEOMETRIES = [(1, 1, 8), (1, 4, 16), (2, 1, 16), (2, 3, 32), (3, 3, 64), (8, 1, 4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize(("kv_heads", "groups", "dim"), GEOMETRIES)
def test_attention(kv_heads: int, groups: int, dim: int, size: int, dtype: torch.dtype) -> None:
    rng = random.Random(size * 100 + kv_heads)
    for seed in range(6):
        case = make_case(seed, dtype, kv_heads, groups, dim, size, random_shapes(rng, size), padding=seed)
        expected = reference.attention(case.q, case.k, case.v, case.batch, dim**-0.5)
        torch.testing.assert_close(attend(case), expected, atol=bound(dtype), rtol=0)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_attention_reads_nothing_but_the_known_tokens(size: int, dtype: torch.dtype, poison: float) -> None:
    """R-13: what a request left behind in a block, or padding in the null block, touches nobody: 0 * NaN is NaN."""
    rng = random.Random(size)
    for seed in range(8):
        shapes = [(5, 1), (2, 3), *random_shapes(rng, size)]
        clean = make_case(seed, dtype, 2, 3, 16, size, shapes, padding=3)
        dirty = make_case(seed, dtype, 2, 3, 16, size, shapes, padding=3, poison=poison)
        assert not torch.isfinite(dirty.k).all()
        got = attend(dirty)
        assert torch.isfinite(got).all()
        assert torch.equal(got, attend(clean)), "values outside the sequences change the result"


def test_attention_of_a_poisoned_sequence_stays_its_own() -> None:
    shapes = [(20, 1), (0, 9), (21, 1), (4, 7)]
    clean = make_case(1, torch.float32, 2, 2, 16, 4, shapes)
    dirty = make_case(1, torch.float32, 2, 2, 16, 4, shapes)
    for sequence in (1, 2):
        dirty.v[:, dirty.batch.tables[sequence, 0], 0] = math.nan
    expected, got = attend(clean), attend(dirty)
    for sequence, (first, last) in enumerate(zip(clean.batch.offsets, clean.batch.offsets[1:], strict=False)):
        if sequence in (1, 2):
            assert got[last - 1].isnan().all()
        else:
            assert torch.equal(got[first:last], expected[first:last])


def test_attention_does_not_write() -> None:
    case = make_case(3, torch.float32, 2, 2, 16, 4, [(7, 1), (0, 5), (64, 1)], padding=2, poison=math.nan)
    k, v = case.k.clone(), case.v.clone()
    attend(case)
    assert torch.equal(case.k.nan_to_num(7.0), k.nan_to_num(7.0))
    assert torch.equal(case.v.nan_to_num(7.0), v.nan_to_num(7.0))


def test_rows_do_not_depend_on_neighbours() -> None:
    """float32: a sequence's numbers are the same bits alone and among others."""
    shapes = [(17, 1), (0, 6), (17, 1), (70, 1), (3, 4), (30, 1)]
    case = make_case(5, torch.float32, 2, 3, 16, 4, shapes)
    together = attend(case)
    for row, (first, last) in enumerate(zip(case.batch.offsets, case.batch.offsets[1:], strict=False)):
        batch = PagedBatch(
            [0, last - first], [case.batch.starts[row]], case.batch.tables[row : row + 1],
            case.batch.positions[first:last], case.batch.slots[first:last], 4,
        )  # fmt: skip
        alone = attend(Case(case.q[first:last], case.k, case.v, batch))
        assert torch.equal(alone, together[first:last])


def test_reference_attention_is_softmax_attention() -> None:
    """One sequence in consecutive blocks: torch's own causal attention over its tokens in a row."""
    case = make_case(2, torch.float32, 2, 3, 16, 4, [(0, 11)])
    tokens = case.batch.tables[0, :3]
    k = case.k[:, tokens].flatten(1, 2)[:, :11].repeat_interleave(3, 0)
    v = case.v[:, tokens].flatten(1, 2)[:, :11].repeat_interleave(3, 0)
    scores = case.q.transpose(0, 1) @ k.transpose(1, 2) / 4.0
    scores = scores.masked_fill(torch.ones(11, 11).triu(1).bool(), -math.inf)
    expected = (scores.softmax(-1) @ v).transpose(0, 1)
    got = reference.attention(case.q, case.k, case.v, case.batch, 0.25)
    torch.testing.assert_close(got, expected, atol=FP32_BOUND, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_write_kv(size: int, dtype: torch.dtype) -> None:
    case = make_case(4, dtype, 2, 2, 8, size, [(5, 3), (0, 7), (size, 1)])
    k, v = (torch.randn(11, 2, 8).to(dtype) for _ in range(2))
    ours, theirs = (case.k.clone(), case.v.clone()), (case.k.clone(), case.v.clone())
    api.write_kv(k, v, *ours, case.batch.slots)
    reference.write_kv(k, v, *theirs, case.batch.slots)
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    slot = int(case.batch.slots[4])
    assert torch.equal(ours[0][:, slot // size, slot % size], k[4])
    written = {(s // size, s % size) for s in case.batch.slots.tolist()}
    untouched = [(b, o) for b in range(case.k.shape[1]) for o in range(size) if (b, o) not in written]
    assert all(torch.equal(ours[1][:, b, o], case.v[:, b, o]) for b, o in untouched)


def test_write_into_one_layer_of_a_pool() -> None:
    kv = PagedKV(3, 2, 5, 4, 8, torch.float32, torch.device("cpu"))
    assert kv.num_bytes == 2 * 3 * 2 * 5 * 4 * 8 * 4
    k, v = torch.randn(2, 2, 8), torch.randn(2, 2, 8)
    api.write_kv(k, v, kv.k[1], kv.v[1], torch.tensor([7, 12]))
    assert torch.equal(kv.k[1][:, 1, 3], k[0]) and torch.equal(kv.v[1][:, 3, 0], v[1])
    assert kv.k[0].count_nonzero() == 0 and kv.k[2].count_nonzero() == 0
    assert kv.k[1].count_nonzero() == 2 * 2 * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 8), (16, 64), (5, 576)])
def test_rms_norm(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, weight = torch.randn(shape).to(dtype) * 3, (1 + 0.1 * torch.randn(shape[1])).to(dtype)
    got = api.rms_norm(x, weight, 1e-5)
    assert got.dtype is dtype
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype is torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
    torch.testing.assert_close(got, reference.rms_norm(x, weight, 1e-5), **tolerance)
    exact = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(got.double(), exact, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rope(dtype: torch.dtype) -> None:
    x = torch.randn(6, 3, 8).to(dtype)
    angles = torch.rand(6, 4) * 6
    got = api.rope(x, angles.cos().to(dtype), angles.sin().to(dtype))
    torch.testing.assert_close(
        got, reference.rope(x, angles.cos().to(dtype), angles.sin().to(dtype)), atol=bound(dtype), rtol=0
    )
    # Dimension i and i + half are the two coordinates of a point that is turned: a complex product.
    turned = torch.complex(x[..., :4].double(), x[..., 4:].double()) * torch.polar(
        torch.ones(6, 1, 4).double(), angles[:, None].double()
    )
    torch.testing.assert_close(got.double(), torch.cat([turned.real, turned.imag], -1), atol=bound(dtype), rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silu_mul(dtype: torch.dtype) -> None:
    x = (torch.randn(7, 24) * 4).to(dtype)
    got = api.silu_mul(x)
    torch.testing.assert_close(got, reference.silu_mul(x), atol=0, rtol=0)
    gate, up = x.double().chunk(2, -1)
    tolerance = 1e-6 if dtype is torch.float32 else 1e-2
    torch.testing.assert_close(got.double(), gate / (1 + (-gate).exp()) * up, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "inner", "outer"), [(1, 8, 5), (16, 64, 96), (33, 576, 192)])
def test_linear(rows: int, inner: int, outer: int, bias: bool, dtype: torch.dtype) -> None:
    x, weight = torch.randn(rows, inner).to(dtype), torch.randn(outer, inner).to(dtype) / inner**0.5
    b = torch.randn(outer).to(dtype) if bias else None
    exact = x.double() @ weight.double().T + (b.double() if b is not None else 0)
    got = api.Linear(weight, b)(x)
    assert got.dtype is dtype and got.shape == (rows, outer)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), exact, atol=tolerance, rtol=tolerance)


def test_row_multiple_keeps_rows_bitwise() -> None:
    """What `row_multiple` promises for float32 on a CPU: a row of a product does not depend on the row count."""
    multiple = api.row_multiple(torch.float32, torch.device("cpu"))
    assert api.row_multiple(torch.bfloat16, torch.device("cpu")) >= 1
    linear = api.Linear(torch.randn(192, 64))
    x = torch.randn(8 * multiple, 64)
    whole = linear(x)
    for rows in range(multiple, 8 * multiple, multiple):
        assert torch.equal(linear(x[:rows]), whole[:rows])
