"""The operations that a CPU server multiplies by adapters with, against the sums that they stand for."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import torch

import mlrl_core.generation.vllm
from mlrl_core.generation.vllm.plugin import mlrl_vllm_cpu as plugin

FOLDER = Path(mlrl_core.generation.vllm.__file__).parent / "plugin"
SLOTS, RANK, WIDE = 3, 4, 10


@pytest.mark.parametrize("slots", [[1, 1, 1, 1], [2, 0, 2, 1], [-1, 0, -1, 2], [-1, -1, -1, -1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_token_gets_its_adapter_or_none(slots: list[int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, WIDE).to(dtype)
    first, second = torch.randn(SLOTS, 1, RANK, WIDE).to(dtype), torch.randn(SLOTS, 1, WIDE, RANK).to(dtype)
    chosen = torch.tensor(slots)
    small = torch.full((4, RANK), 9.0)
    plugin.bgmv_shrink(inputs, first, small, chosen, 0.5)
    expected = torch.stack(
        [
            0.5 * first[slot, 0].float() @ row.float() if slot >= 0 else torch.zeros(RANK)
            for slot, row in zip(slots, inputs, strict=True)
        ]
    )
    torch.testing.assert_close(small, expected)

    before = torch.randn(4, WIDE + 5).to(dtype)
    added = torch.stack(
        [
            second[slot, 0].float() @ row if slot >= 0 else torch.zeros(WIDE)
            for slot, row in zip(slots, expected, strict=True)
        ]
    )
    near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.05}
    for add in (True, False):
        output = before.clone()
        plugin.bgmv_expand_slice(small, second, output, chosen, 3, WIDE, add)
        torch.testing.assert_close(
            output[:, 3 : 3 + WIDE].float(), add * before[:, 3 : 3 + WIDE].float() + added, **near
        )
        assert torch.equal(output[:, :3], before[:, :3])
        assert torch.equal(output[:, 3 + WIDE :], before[:, 3 + WIDE :])
    narrow = before[:, :7].clone()
    plugin.bgmv_expand(small, second, narrow, chosen)
    torch.testing.assert_close(narrow.float(), before[:, :7].float() + added[:, :7], **near)


def test_vllm_finds_it_by_its_folder() -> None:
    (found,) = importlib.metadata.distributions(path=[str(FOLDER)])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == ("vllm.general_plugins", "mlrl_vllm_cpu:register")
    assert callable(plugin.register)
    assert "mlrl_core" not in "".join(
        line for line in Path(plugin.__file__).read_text().splitlines() if line.lstrip().startswith(("import", "from"))
    )
