"""What the doctor says of GPUs and slots."""

from __future__ import annotations

import pytest

from mlrl_core.commands.hardware import Gpu, check_gpus, propose_slots, propose_split, read_gpus
from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import MlrlError


def _gpus(count: int) -> list[Gpu]:
    return [Gpu(number, "A100-SXM4-40GB", 40960) for number in range(count)]


def _apply(proposal: str) -> RunConfig:
    """The paper's profile with the settings of a proposal."""
    words = proposal.replace(", ", ",").split()
    return load_config("paper", [word for word in words if "=" in word])


def test_list_of_the_driver() -> None:
    text = "0, NVIDIA A100-SXM4-40GB, 40960\n1, NVIDIA H100, [N/A]\nNo devices were found\n"
    assert read_gpus(text) == [Gpu(0, "NVIDIA A100-SXM4-40GB", 40960)]


def test_eight_are_enough_for_the_paper() -> None:
    assert check_gpus(load_config("paper"), _gpus(8)) == ("8 x A100-SXM4-40GB 40 GB: 4 for the learner, 4 for servers")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_fewer_get_a_proposal_that_passes(count: int) -> None:
    with pytest.raises(MlrlError, match=f"8 wanted .* {count} found") as refused:
        check_gpus(load_config("paper"), _gpus(count))
    assert propose_split(count) in str(refused.value)
    check_gpus(_apply(propose_split(count)), _gpus(count))


def test_a_device_wanted_twice() -> None:
    config = load_config("paper", ["learner.ranks=5"])
    with pytest.raises(MlrlError, match=r"cuda:4 is the learner's .* and a server's"):
        check_gpus(config, _gpus(8))


def test_runs_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    second = load_config("paper", ["learner.ranks=2", 'generation.servers=["cuda:6", "cuda:7"]'])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert check_gpus(second, _gpus(8)).endswith("2 for the learner, 2 for servers")
    with pytest.raises(MlrlError, match="cuda:4 is the learner's"):
        check_gpus(load_config("paper", ["learner.ranks=1"]), _gpus(8))
    with pytest.raises(MlrlError, match=r"learner\.ranks = 4, but CUDA_VISIBLE_DEVICES = 4,5 shows 2 GPUs"):
        check_gpus(load_config("paper"), _gpus(8))


def test_a_gpu_that_is_too_small_is_said_before_it_is_full() -> None:
    small = [Gpu(number, "T4", 8192) for number in range(8)]
    with pytest.raises(MlrlError, match=r"cuda:0 \(T4\) has 8 GB, the learner needs about 12"):
        check_gpus(load_config("paper"), small)


def test_slots_leave_cores_for_learner_and_servers_and_memory_for_the_rest() -> None:
    paper = load_config("paper")
    assert propose_slots(paper, 96, 2_000_000) == 88  # 96 cores less 8 processes
    assert propose_slots(paper, 96, 512 * 1024) == 28  # 28 x 16 GiB = 448 of 460 GiB
    assert propose_slots(paper, 4, 1024) == 1
