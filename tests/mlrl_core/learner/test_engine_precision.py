"""Half precision: where it is used and how far it may lead."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from mlrl_core.learner.engine import Engine
from mlrl_core.learner.tensors import TensorBatch
from tests.mlrl_core.learner.test_engine import LENGTHS, MakeConfig, MakeRows


def test_a_bfloat16_backbone_keeps_fp32_adapters_and_agrees_roughly(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    engines = [Engine(backbone, make_config(f"policy.dtype={dtype}")) for dtype in ("float32", "bfloat16")]
    rows = make_rows(LENGTHS, prompts=2)
    batch = TensorBatch.of(rows)
    exact, rough = (e.compute_log_probs(e.deal(rows, range(len(rows)), batch), batch) for e in engines)
    on = batch.response_mask.bool()
    assert 0 < (exact - rough)[on].abs().mean() < 0.1
    assert all(p.dtype == torch.float32 for p in engines[1].network.trainable().values())
    metrics = engines[1].update(rows)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["adapter/delta_norm"] > 0


def test_autocast_computes_the_decoder_in_bfloat16_and_keeps_the_weights(
    backbone: Path, make_config: MakeConfig, make_rows: MakeRows
) -> None:
    engines = [Engine(backbone, make_config(f"learner.autocast={switch}")) for switch in ("false", "true")]
    seen: list[torch.dtype] = []
    layer = engines[1].model.get_base_model().get_decoder().layers[0].mlp
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    rows = make_rows(LENGTHS, prompts=2)
    batch = TensorBatch.of(rows)
    exact, rough = (e.compute_log_probs(e.deal(rows, range(len(rows)), batch), batch) for e in engines)
    on = batch.response_mask.bool()
    assert set(seen) == {torch.bfloat16}
    assert 0 < (exact - rough)[on].abs().mean() < 0.1
    metrics = engines[1].update(rows)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["adapter/delta_norm"] > 0
    assert all(p.dtype == torch.float32 for p in engines[1].network.trainable().values())
