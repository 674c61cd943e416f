"""The generator over several servers: versions, what stands in for one that failed, and servers that vanish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation import GenerationRequest
from mlrl_core.generation.vllm import pool as pools
from mlrl_core.generation.vllm.generator import VllmGenerator
from tests.mlrl_core.generation.vllm.fake_server import FakeServer
from tests.mlrl_core.generation.vllm.test_adapters import write
from tests.mlrl_core.generation.vllm.test_pool import config

SETTINGS = ["sampling.max_new_tokens=20", "prompt.max_tokens=40"]
SETTINGS += ["generation.request_deadline_s=1", "generation.start_deadline_s=1"]


class _Setting:
    """Two fake servers, a generator over them, and versions on disk."""

    def __init__(self, folder: Path, context: int = 1024) -> None:
        self.folder = folder
        self.servers = [FakeServer(context=context) for _ in range(2)]
        urls = ", ".join(f'"{each.url}"' for each in self.servers)
        self.config = config(f"generation.servers=[{urls}]", *SETTINGS)
        self.generator = VllmGenerator(self.config, folder, folder / "run")

    def version(self, number: int, *, tensors: dict[str, torch.Tensor] | None = None, expected: float = -1.0) -> Path:
        """A published version whose canary says that every log-probability is ``expected``."""
        folder = self.folder / f"{number:05d}"
        write(folder / "adapter", tensors)
        facts = {"canary_ids": [1, 2, 3], "canary_log_probs": [expected] * 2, "canary_temperature": 1.0}
        (folder / "manifest.json").write_text(json.dumps(facts))
        return folder / "adapter"

    def sampled_from(self, asked: int, count: int = 6) -> set[int]:
        """The versions that answered."""
        return {each.policy_version for each in self.generator.generate(requests(count), asked)}

    def loaded(self) -> list[set[str]]:
        return [{name[-3:] for name in each.adapters} for each in self.servers]


def requests(count: int, tokens: int = 2) -> list[GenerationRequest]:
    return [GenerationRequest(f"s{number}", tuple(range(1, tokens + 1)), number) for number in range(count)]


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Setting]:
    monkeypatch.setattr(pools, "_REST_S", 0.1)
    made = _Setting(tmp_path)
    yield made
    made.generator.close()
    for server in made.servers:
        server.close()


def test_a_version_that_failed_is_stood_in_for_and_said_to_be(setting: _Setting) -> None:
    generator = setting.generator
    generator.load_version(1, setting.version(1))
    broken = {"base_model.model.layers.0.q_proj.lora_A.weight": torch.tensor([[float("nan")]])}
    generator.load_version(2, setting.version(2, tensors=broken))
    assert generator.serving(2) == 1
    assert setting.sampled_from(2) == {1}
    generator.load_version(3, setting.version(3, expected=-3.0))
    assert (generator.serving(3), setting.sampled_from(3)) == (1, {1})
    assert setting.loaded() == [{"001"}, {"001"}]
    generator.load_version(4, setting.version(4))
    assert (generator.serving(4), setting.sampled_from(4)) == (4, {4})
    assert (generator.serving(2), generator.serving(3)) == (1, 1)  # rows of those waves may still be written
    assert setting.loaded() == [{"004"}, {"004"}]
    assert generator.metrics()["adapter/push_fail"] == 2


def test_the_first_version_has_none_to_stand_in(setting: _Setting) -> None:
    with pytest.raises(MlrlError, match="from the learner's"):
        setting.generator.load_version(0, setting.version(0, expected=-3.0))
    with pytest.raises(ValueError, match="version None is loaded"):
        setting.generator.generate(requests(1), 0)


def test_runs_of_one_name_share_servers(setting: _Setting) -> None:
    """Two evaluations of version 7, say: each is a folder called 00007 in its own run."""
    other = VllmGenerator(setting.config, setting.folder, setting.folder / "elsewhere" / "run")
    setting.generator.load_version(1, setting.version(1))
    moved = write(setting.folder / "other" / "00001" / "adapter")
    other.load_version(1, moved)
    assert [len(each.adapters) for each in setting.servers] == [2, 2]
    other.close()
    assert setting.loaded() == [{"001"}, {"001"}]
    assert setting.sampled_from(1) == {1}


def test_a_wave_outlives_one_of_its_servers(setting: _Setting) -> None:
    setting.generator.load_version(1, setting.version(1))
    gone, left = setting.servers
    gone.delay_s = left.delay_s = 0.05
    stream = setting.generator.generate(requests(40), 1)
    answers = [next(stream)]
    gone.healthy, gone.fault = False, "error"
    answers += list(stream)
    assert sorted(each.solution_id for each in answers) == sorted(each.solution_id for each in requests(40))
    left.healthy, left.fault = False, "error"
    with pytest.raises(InfraError, match=r"no vLLM server had room in time; the last error: .*500"):
        list(setting.generator.generate(requests(4), 1))


def test_a_long_prompt_leaves_less_for_the_response_and_one_too_long_is_one_line(tmp_path: Path) -> None:
    """A chat template is not counted in prompt.max_tokens; a server refuses what is beyond its context."""
    setting = _Setting(tmp_path, context=60)
    setting.generator.load_version(1, setting.version(1))
    for tokens, left in ((40, 20), (45, 15), (59, 1)):
        (answer,) = setting.generator.generate(requests(1, tokens), 1)
        assert len(answer.response_ids) == left
    with pytest.raises(MlrlError, match=r"fills the servers' context of 60 tokens: lower prompt\.max_tokens"):
        list(setting.generator.generate(requests(1, 60), 1))
    setting.generator.close()
    for server in setting.servers:
        server.close()
