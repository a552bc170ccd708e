"""`TorchExecutor`: the real model, on CPU or CUDA.

One packed forward pass an iteration over persistent rows (`BatchRows`), logits for the sampling rows only, and one
transfer of the sampled tokens back.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.clock import Clock
from engine.config import EngineConfig
from engine.executors.base import Sampled, spread
from engine.executors.rows import BatchRows
from engine.executors.swap_kv import SwapKV
from engine.models.decoder import Decoder
from engine.plan import Plan
from engine.request import Request
from engine.sampler import Draw, sample, seed_of
from kernels.api import PagedBatch, PagedKV


class TorchExecutor:
    def __init__(self, decoder: Decoder, config: EngineConfig, clock: Clock, seed: int = 0) -> None:
        shape = decoder.config
        self.decoder = decoder
        self.kv = PagedKV(
            shape.num_layers,
            shape.num_kv_heads,
            config.num_blocks,
            config.block_size,
            shape.head_dim,
            decoder.dtype,
            decoder.device,
        )
        self._swap = SwapKV(self.kv, config.cpu_blocks)
        self._rows = BatchRows(config.model_len, config.block_size)
        self._clock = clock
        self._seed = seed
        self._seeds: dict[str, int] = {}

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        return self._swap.copy(out, back)

    def release(self, id: str) -> None:
        self._rows.release(id)
        self._seeds.pop(id, None)

    @torch.inference_mode()
    def execute(self, plan: Plan) -> Sampled:
        now = self._clock.now
        begun = now()
        decoder, device = self.decoder, self.decoder.device
        packed = self._rows.pack(plan, decoder.rows)
        batch = PagedBatch(
            packed.offsets,
            packed.starts,
            torch.from_numpy(packed.tables).to(device),
            torch.from_numpy(packed.positions).to(device),
            torch.from_numpy(packed.slots).to(device),
            self._rows.block_size,
        )
        ids = torch.from_numpy(packed.ids).to(device)
        built = now()
        hidden = decoder.forward(ids, batch, self.kv)
        sampling = packed.sampling
        if not sampling:
            return Sampled(spread((), (), len(plan.requests)), built - begun, now() - built, 0.0)
        last = [packed.offsets[index + 1] - 1 for index in sampling]
        last += [0] * (-len(last) % decoder.rows)
        logits = decoder.logits(hidden[torch.tensor(last, device=device)])[: len(sampling)]
        forwarded = now()
        draws = [self._draw(plan.requests[index], packed.ends[index]) for index in sampling]
        sampled = sample(logits, draws)
        self._rows.append(sampling, sampled)
        tokens = spread(sampling, sampled, len(plan.requests))
        return Sampled(tokens, built - begun, forwarded - built, now() - forwarded)

    def _draw(self, request: Request, position: int) -> Draw:
        seed = self._seeds.get(request.id)
        if seed is None:
            seed = self._seeds[request.id] = seed_of(request.id, request.params, self._seed)
        return Draw(request.params, seed, position)
