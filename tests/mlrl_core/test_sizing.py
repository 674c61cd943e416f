"""The reckoning, against figures worked out by hand from the models' published shapes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mlrl_core.commands.hardware import propose_slots
from mlrl_core.config import load_config
from mlrl_core.errors import MlrlError
from mlrl_core.sizing import QWEN25_3B, SMOLLM2, ModelShape, lora_parameters, needs_of, shape_of


def test_shape_of_the_papers_model() -> None:
    # Per layer 2048 x (2048 + 256 + 256 + 2048) + 3 x 2048 x 11008; embeddings 151936 x 2048.
    assert QWEN25_3B.parameters == 36 * (9_437_184 + 67_633_152) + 311_164_928
    assert QWEN25_3B.kv_bytes_per_token == 36_864
    # 64 x 36 x (4096 + 2304 + 2304 + 4096 + 3 x 13056)
    assert lora_parameters(QWEN25_3B, 64, load_config("paper").policy.lora.target_modules) == 119_734_272


def test_needs_follow_the_configuration() -> None:
    one = needs_of(load_config("paper"), QWEN25_3B)
    assert one.model == pytest.approx(5.75, abs=0.01)
    assert needs_of(load_config("paper", ["learner.ranks=2"]), QWEN25_3B).learner > one.learner
    assert needs_of(load_config("paper", ["learner.gradient_checkpointing=false"]), QWEN25_3B).learner > 5 * one.learner
    # 101 adapters of 0.446 GiB and 14 states of 2 x 3 x 0.446 GiB
    assert one.disk == pytest.approx(119_734_272 * 4 / 2**30 * (101 + 14 * 6), rel=1e-6)


def test_smollm2_has_as_many_weights_as_its_file() -> None:
    norms = 61 * 576
    assert SMOLLM2.parameters + norms == 134_515_008


def test_shape_comes_from_the_folder(tmp_path: Path) -> None:
    config = load_config("smollm2", [f"policy.model={tmp_path}"])
    assert shape_of(config) is None
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    with pytest.raises(MlrlError, match=r"config\.json can't be read"):
        shape_of(config)
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "num_hidden_layers": 2, '
        '"vocab_size": 100}'
    )
    assert shape_of(config) == ModelShape(64, 96, 2, 4, 4, 16, 100, False)


# Of docs/gpu.md: bytes/s and useful operations/s of one GPU, its GiB, threads and GiB of the host.
MACHINES = [(1.56e12, 0.25 * 312e12, 40, 96, 1152), (2.04e12, 0.25 * 312e12, 80, 96, 1152)]
MACHINES += [(3.35e12, 0.20 * 989e12, 80, 192, 2048)]


def _table() -> dict[str, list[list[float]]]:
    """The rows of the table of eight GPUs: label to the numbers in each column."""
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    lines = text.split("| | 8 x A100-40 |")[1].split("\n\n")[0].split("\n")[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: [[float(n) for n in re.findall(r"\d+", c.replace(",", ""))] for c in row[1:]] for row in cells}


def _rows(label: str) -> list[list[float]]:
    (found,) = [row for name, row in _table().items() if name.startswith(label)]
    return found


def test_the_table_of_eight_gpus_is_what_the_formulas_give() -> None:
    config = load_config("paper")
    needs = needs_of(config, QWEN25_3B)
    weights = 2 * QWEN25_3B.parameters
    context = QWEN25_3B.kv_bytes_per_token
    adapter = lora_parameters(QWEN25_3B, 64, config.policy.lora.target_modules)
    for column, (bandwidth, operations, gib, threads, host_gib) in enumerate(MACHINES):

        def said(label: str, column: int = column) -> list[float]:
            return _rows(label)[column]

        share = config.generation.gpu_memory_share * gib
        assert said("host") == [threads, host_gib]
        assert said("learner") == [round(needs.learner), gib]
        assert said("server") == [round(needs.server), round(share)]
        free = share * 2**30 - weights - 3 * adapter * 2 - 3.5 * 2**30
        assert said("responses") == [pytest.approx(free / (2048 * context), rel=0.02)]
        slots = propose_slots(config, threads, host_gib * 1024)
        assert said("execution slots") == [slots]
        assert said("disk") == [round(needs.model), round(needs.disk)]
        sampling = 700 * (weights + 40 * 1400 * context) / (0.5 * bandwidth)
        assert said("sampling") == said("instrumenting") == [pytest.approx(sampling, abs=1)]
        assert said("executing") == [round(128 * 100 / slots)]
        update = 16 * QWEN25_3B.parameters * 156_000 / (4 * operations)
        assert said("update") == [pytest.approx(update, abs=0.5)]
        assert said("publishing") == [pytest.approx((4 + 24) * adapter / 1e9 + 4 * 0.4, abs=0.5)]
        once = sum(said(each)[0] for each in ("sampling", "instrumenting", "update", "publishing"))
        assert said("**a step at first") == [pytest.approx((once + said("executing")[0]) / 60, abs=0.5)]
        later = (once + 128 * 10 / slots) / 60
        assert later == pytest.approx((said("a step once") or [0.5])[0], abs=0.15)
    assert needs_of(load_config("paper", ["learner.gradient_checkpointing=false"]), QWEN25_3B).learner == pytest.approx(
        needs.learner + 67, abs=0.5
    )


def test_every_command_and_key_of_the_page_exists() -> None:
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    for settings in re.findall(r"mlrl (?:train|doctor)((?: +--[a-z-]+ +(?:'[^']*'|[^\s#`]+))+)", text):
        words = shlex.split(settings)
        options = list(zip(words[::2], words[1::2], strict=True))
        assert {name for name, _ in options} <= {"--profile", "--set", "--seed", "--run"}
        load_config("paper", [value for name, value in options if name == "--set"])
    keys = set(re.findall(r"`((?:learner|generation|ppo|sandbox|policy|tracking)\.[a-z_]+)", text))
    assert len(keys) > 8
    known = load_config("paper").model_dump()
    for key in keys:
        section, name = key.split(".")
        assert name in known[section], key
