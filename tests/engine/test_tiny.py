"""The built-in model: the same numbers everywhere, and greedy text that wanders."""

from __future__ import annotations

import hashlib

import torch

from engine.models.tiny import BOS, TINY_CONFIG, tiny_weights


def test_same_numbers_everywhere() -> None:
    digest = hashlib.sha256()
    for name, tensor in tiny_weights().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    assert digest.hexdigest()[:16] == "c02cd31e8b276393"
    assert not torch.equal(tiny_weights(1)["lm_head.weight"], tiny_weights(0)["lm_head.weight"])


def test_greedy_text_wanders() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in TINY_CONFIG.items() if k != "architectures"}))
    model.load_state_dict(tiny_weights(), strict=True)
    prompt = torch.tensor([[BOS, *b"Hello"]])
    output = model.eval().generate(
        prompt, max_new_tokens=100, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    tokens = output.sequences[0, prompt.shape[1] :].tolist()
    assert len(tokens) == 100 and len(set(tokens)) > 20
    assert all(32 <= token < 127 for token in tokens)
    top = torch.cat(output.logits).topk(2).values
    assert (top[:, 0] - top[:, 1]).median() > 0.5
