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


LIST = """0, GPU-aa11, NVIDIA A100-SXM4-40GB, 40960
1, GPU-bb22, NVIDIA H100, [N/A]
2, GPU-cc33, NVIDIA L4, 23034
3, GPU-cd44, NVIDIA L4, 23034
No devices were found
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [(0, "NVIDIA A100-SXM4-40GB", 40960), (2, "NVIDIA L4", 23034), (3, "NVIDIA L4", 23034)]),
        ("3, 0", [(0, "NVIDIA L4", 23034), (1, "NVIDIA A100-SXM4-40GB", 40960)]),
        ("GPU-cd,GPU-aa11", [(0, "NVIDIA L4", 23034), (1, "NVIDIA A100-SXM4-40GB", 40960)]),
        ("MIG-1,2", [(0, "MIG-1", 0), (1, "NVIDIA L4", 23034)]),
        ("2,9,3", [(0, "NVIDIA L4", 23034)]),  # CUDA sees nothing behind a name that is none
        ("", []),
        ("-1", []),
    ],
)
def test_list_of_the_driver(visible: str | None, expected: list[tuple[int, str, int]]) -> None:
    assert read_gpus(LIST, visible) == [Gpu(*each) for each in expected]


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
    with pytest.raises(MlrlError, match=r"cuda:4 is the learner's .* and a server's, and it leaves 4 GB of the 11"):
        check_gpus(config, _gpus(8))
    unknown = load_config("paper", ["learner.ranks=5", "policy.model=somebody/else"])
    with pytest.raises(MlrlError, match=r"cuda:4 is the learner's .* lower generation\.gpu_memory_share"):
        check_gpus(unknown, _gpus(8))
    check_gpus(load_config("paper", ["learner.ranks=5", "generation.gpu_memory_share=0.5"]), _gpus(8))


def test_a_server_needs_its_share() -> None:
    with pytest.raises(MlrlError, match=r"gpu_memory_share = 0\.2 gives the server 8 and it needs about 11"):
        check_gpus(load_config("paper", ["generation.gpu_memory_share=0.2"]), _gpus(8))


def test_a_gpu_that_is_too_small_is_said_before_it_is_full() -> None:
    small = [Gpu(number, "T4", 8192) for number in range(8)]
    with pytest.raises(MlrlError, match=r"cuda:0 \(T4\) has 8 GB, the learner needs about 12"):
        check_gpus(load_config("paper"), small)


def test_slots_leave_cores_for_learner_and_servers_and_memory_for_the_rest() -> None:
    paper = load_config("paper")
    assert propose_slots(paper, 96, 2_000_000) == 88  # 96 cores less 8 processes
    assert propose_slots(paper, 96, 512 * 1024) == 28  # 28 x 16 GiB = 448 of 460 GiB
    assert propose_slots(paper, 4, 1024) == 1
