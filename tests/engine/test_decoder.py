"""Logits of `Decoder` against transformers' LlamaForCausalLM, float32, over random small configurations."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.models.weights import EMBED, HEAD, expected_shapes
from kernels.paged import PagedBatch, PagedKV

BOUND = 1e-4
"""Largest difference of a logit. Logits reach 10 (43 with tied weights); measured were 6e-6 to 5e-5."""

BASE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LINEAR = {"factor": 4.0}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "declared-head-dim": {"head_dim": 20},
    "one-kv-head": {"num_key_value_heads": 1},
    "all-kv-heads": {"num_key_value_heads": 4},
    "attention-bias": {"attention_bias": True},
    "mlp-bias": {"mlp_bias": True},
    "all-biases-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "one-layer": {"num_hidden_layers": 1},
    "other-eps-theta": {"rms_norm_eps": 1e-2, "rope_theta": 500.0},
    "large-theta": {"rope_theta": 1e6},
    "linear": {"rope_scaling": {"rope_type": "linear", **LINEAR}},
    "linear-old-spelling": {"rope_scaling": {"type": "linear", **LINEAR}},
    "linear-new-spelling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, **LINEAR}},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 500000.0},
    "llama3-new-spelling": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, **LLAMA3}},
    "everything": {
        "head_dim": 24,
        "num_key_value_heads": 1,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 2000.0, **LLAMA3},
    },
}


def both(changes: dict[str, Any], seed: int = 0) -> tuple[Any, Decoder, ModelConfig]:
    """The same random weights in transformers' model and in ours, each through its own reading of the config."""
    from transformers import LlamaConfig, LlamaForCausalLM

    raw = {**BASE, **changes}
    config = ModelConfig.from_hf({"architectures": ["LlamaForCausalLM"], "model_type": "llama", **raw})
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(shape, generator=generator) * (0.3 if name.endswith("bias") else 2.0 / shape[-1] ** 0.5)
        for name, shape in expected_shapes(config).items()
    }
    for name in weights:
        if name.endswith("norm.weight"):
            weights[name] = 1 + 0.3 * torch.randn(weights[name].shape, generator=generator)
    weights[EMBED] *= 5
    if config.tie_word_embeddings:
        weights[HEAD] = weights[EMBED]
    theirs = LlamaForCausalLM(LlamaConfig(**raw, attn_implementation="eager")).eval()
    theirs.load_state_dict(weights, strict=True)
    ours = Decoder(config, {name: tensor.clone() for name, tensor in weights.items()}, 256)
    return theirs, ours, config


class Cache:
    """Sequences fed to a decoder in batches of chunks, over shuffled blocks."""

    def __init__(self, decoder: Decoder, size: int, sequences: list[list[int]]) -> None:
        config = decoder.config
        needs = [-(-len(sequence) // size) for sequence in sequences]
        numbers = list(range(1, sum(needs) + 1))
        random.Random(size).shuffle(numbers)
        self.decoder, self.size, self.sequences = decoder, size, sequences
        self.tables = [[numbers.pop() for _ in range(need)] for need in needs]
        self.done = [0] * len(sequences)
        self.kv = PagedKV(
            config.num_layers, config.num_kv_heads, sum(needs) + 1, size, config.head_dim, torch.float32,
            torch.device("cpu"),
        )  # fmt: skip

    @torch.inference_mode()
    def step(self, counts: dict[int, int]) -> dict[int, torch.Tensor]:
        """Logits [count, vocabulary] of each sequence's next `count` tokens."""
        offsets, ids, positions, slots = [0], [], [], []
        for row, count in counts.items():
            for at in range(self.done[row], self.done[row] + count):
                ids.append(self.sequences[row][at])
                positions.append(at)
                slots.append(self.tables[row][at // self.size] * self.size + at % self.size)
            offsets.append(len(ids))
        padding = [0] * (-len(ids) % self.decoder.rows)
        width = max(map(len, self.tables))
        batch = PagedBatch(
            offsets,
            [self.done[row] for row in counts],
            torch.tensor([self.tables[row] + [0] * (width - len(self.tables[row])) for row in counts]),
            torch.tensor(positions + padding),
            torch.tensor(slots + padding),
            self.size,
        )
        logits = self.decoder.logits(self.decoder.forward(torch.tensor(ids + padding), batch, self.kv))
        assert logits.dtype is torch.float32 and logits.shape == (len(ids + padding), self.decoder.config.vocab_size)
        for row, count in counts.items():
            self.done[row] += count
        return {row: logits[offsets[i] : offsets[i + 1]] for i, row in enumerate(counts)}


@torch.inference_mode()
def logits_by_transformers(model: Any, sequence: list[int]) -> torch.Tensor:
    ids = torch.tensor([sequence])
    logits: torch.Tensor = model(ids, attention_mask=torch.ones_like(ids)).logits[0].float()
    return logits


@pytest.mark.parametrize("name", CONFIGS)
def test_whole_prompts(name: str) -> None:
    """Every position of prompts of several lengths in one batch; below and beyond the original context of llama3."""
    theirs, ours, config = both(CONFIGS[name])
    rng = random.Random(1)
    sequences = [[rng.randrange(config.vocab_size) for _ in range(n)] for n in (1, 2, 17, 150)]
    got = Cache(ours, 16, sequences).step({row: len(sequence) for row, sequence in enumerate(sequences)})
    for row, sequence in enumerate(sequences):
        expected = logits_by_transformers(theirs, sequence)
        assert expected.abs().max() > 1, "logits too small to show anything"
        torch.testing.assert_close(got[row], expected, atol=BOUND, rtol=0)


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("name", ["plain", "everything"])
def test_any_mix_of_chunks_and_decodes(name: str, size: int) -> None:
    """R-09: the same logits at every position, however the tokens are spread over iterations."""
    theirs, ours, config = both(CONFIGS[name])
    rng = random.Random(size)
    sequences = [[rng.randrange(config.vocab_size) for _ in range(n)] for n in (40, 70, 9, 33)]
    cache = Cache(ours, size, sequences)
    got: dict[int, list[torch.Tensor]] = {row: [] for row in range(4)}
    while any(done < len(s) for done, s in zip(cache.done, sequences, strict=True)):
        counts = {}
        for row in rng.sample(range(4), 4):
            left = len(sequences[row]) - cache.done[row]
            if left and rng.random() < 0.8:
                counts[row] = min(left, rng.choice([1, 1, 1, 2, 7, 16]))
        if counts:
            for row, logits in cache.step(counts).items():
                got[row].append(logits)
    for row, sequence in enumerate(sequences):
        torch.testing.assert_close(torch.cat(got[row]), logits_by_transformers(theirs, sequence), atol=BOUND, rtol=0)


def test_bfloat16_stays_near() -> None:
    """The fast mode: no bound per logit is promised, but it is the same model, 8 bits of mantissa through 3 layers."""
    theirs, ours, config = both({})
    rng = random.Random(4)
    sequence = [rng.randrange(config.vocab_size) for _ in range(30)]
    weights = {name: tensor.bfloat16() for name, tensor in theirs.state_dict().items()}
    decoder = Decoder(config, weights, 256)
    cache = Cache(ours, 16, [sequence])
    cache.decoder, cache.kv = decoder, PagedKV(3, 2, 4, 16, 12, torch.bfloat16, torch.device("cpu"))
    got, expected = cache.step({0: 30})[0], logits_by_transformers(theirs, sequence)
    assert (got - expected).pow(2).mean() < 0.01 * expected.pow(2).mean()


def test_weights_are_taken_over() -> None:
    """Nothing that was joined into a larger matrix stays behind, or memory would be needed twice."""
    _, decoder, config = both({})
    weights = {name: torch.zeros(shape) for name, shape in expected_shapes(config).items()}
    size = sum(tensor.numel() for tensor in weights.values())
    assert Decoder(config, weights, 64).num_parameters == size == decoder.num_parameters
    assert set(weights) <= {EMBED}
