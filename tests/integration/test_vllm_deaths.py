"""What poisons or kills a real vLLM server, that our guards keep it from happening, and that a run outlives it. With a
server in bfloat16, as in training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mlrl_core.errors import InfraError
from mlrl_core.generation.vllm.client import PoisonedError, RefusedError
from mlrl_core.generation.vllm.generator import VllmGenerator
from mlrl_core.learner.versions import VersionStore
from tests.integration import vllm_fakes as fakes
from tests.integration.test_vllm import PROMPTS, requests

pytestmark = [pytest.mark.vllm, pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmGenerator, Path, Path]]:
    """A generator on version 1, its backbone, and the folder of versions."""
    fakes.require_vllm()
    folder = tmp_path_factory.mktemp("deaths")
    backbone = fakes.save_backbone(folder / "backbone")
    made = VllmGenerator(fakes.run_config(backbone, "generation.dtype=bfloat16"), backbone, folder / "run")
    made.load_version(1, fakes.save_version(backbone, folder / "versions" / "00001", 1))
    yield made, backbone, folder / "versions"
    made.close()


def all_answered(generator: VllmGenerator, count: int = 12) -> None:
    answers = list(generator.generate(requests(count), 1))
    assert sorted(each.solution_id for each in answers) == sorted(each.solution_id for each in requests(count))
    assert {each.policy_version for each in answers} == {1}


def test_bfloat16_agrees_as_far_as_it_can(served: tuple[VllmGenerator, Path, Path]) -> None:
    generator, backbone, versions = served
    model = fakes.with_adapter(backbone, versions / "00001" / "adapter")
    gaps: list[float] = []
    for answer in generator.generate(requests(12), 1):
        prompt = PROMPTS[int(answer.solution_id[1:]) % len(PROMPTS)]
        expected = fakes.log_probs(model, prompt, answer.response_ids, fakes.TEMPERATURE)
        gaps += [abs(a - b) for a, b in zip(answer.log_probs, expected, strict=True)]
    assert 1e-5 < sum(gaps) / len(gaps) < 0.1


def test_not_a_number_poisons_a_server_until_it_is_restarted(served: tuple[VllmGenerator, Path, Path]) -> None:
    generator, backbone, versions = served
    server = generator.servers[0]
    broken = fakes.save_version(backbone, versions.parent / "broken" / "00002", 2)
    weights = load_file(broken / "adapter_model.safetensors")
    save_file(
        {name: torch.full_like(each, torch.nan) for name, each in weights.items()}, broken / "adapter_model.safetensors"
    )
    failed = generator.metrics()["adapter/push_fail"]
    generator.load_version(2, broken)
    assert generator.metrics()["adapter/push_fail"] == failed + 1
    assert not any("000002" in name for name in server.client.models()[1])  # refused before the server saw it
    all_answered(generator)
    assert server.starts == 1

    server.client.load_adapter("broken", broken)  # past the guard
    with pytest.raises((PoisonedError, RefusedError, InfraError)):
        server.client.complete("broken", (2, 3), max_tokens=4, temperature=1.0, deadline_s=60)
    all_answered(generator)
    assert "broken" not in server.client.models()[1] or server.starts == 1  # cured, or not caught by it at all


def test_an_adapter_that_is_read_again_needs_its_files(served: tuple[VllmGenerator, Path, Path]) -> None:
    generator, backbone, versions = served
    store = VersionStore(versions.parent)
    for version in range(2, 6):
        fakes.save_version(backbone, versions / f"{version:05d}", version)
    for version in range(1, 6):
        (versions / f"{version:05d}" / "DONE").touch()
        (versions / f"{version:05d}" / "state").mkdir()
    assert store.prune()
    assert all((store.path(version) / "adapter" / "adapter_model.safetensors").exists() for version in range(1, 6))

    server = generator.servers[0]
    starts = server.starts
    names = [f"extra-{version}" for version in range(2, 6)]
    for name, version in zip(names, range(2, 6), strict=True):
        shutil.copytree(store.path(version) / "adapter", versions.parent / name)
        server.client.load_adapter(name, versions.parent / name)
    for name in names:
        server.client.complete(name, (2, 3), max_tokens=2, temperature=1.0, deadline_s=60)
    shutil.rmtree(versions.parent / names[0])
    with pytest.raises((InfraError, RefusedError)):
        server.client.complete(names[0], (2, 3), max_tokens=2, temperature=1.0, deadline_s=60)
    all_answered(generator)
    assert server.starts == starts + 1
    assert [name[-8:] for name in server.client.models()[1]] == ["-v000001"]
