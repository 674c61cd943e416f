"""GPU leases with a fake driver: one run a device, and back only when nothing computes on it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.sandbox import gpus, open_sandbox
from mlrl_core.sandbox.gpus import GpuLeases


class Driver:
    """Says which pids compute on a device."""

    def __init__(self) -> None:
        self.busy: dict[str, list[int]] = {}

    def __call__(self, uuid: str) -> list[int]:
        return self.busy.get(uuid, [])


def test_two_runs_have_two_devices_and_a_third_waits(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path / "gpus", ("GPU-a", "MIG-b"), Driver())
    with leases.lease(1) as first, leases.lease(1) as second:
        assert {first, second} == {"GPU-a", "MIG-b"}
        with pytest.raises(InfraError, match="no GPU became free"), leases.lease(0.2):
            pass
    with leases.lease(0.2) as again:
        assert again == "GPU-a"


def test_another_process_holds_its_lease(tmp_path: Path) -> None:
    ours, theirs = (GpuLeases(tmp_path / "gpus", ("GPU-a",), Driver()) for _ in range(2))
    with ours.lease(1), pytest.raises(InfraError), theirs.lease(0.1):
        pass


def test_a_device_that_somebody_uses_is_not_leased(tmp_path: Path) -> None:
    driver = Driver()
    driver.busy = {"GPU-a": [4711]}
    with GpuLeases(tmp_path / "gpus", ("GPU-a", "GPU-b"), driver).lease(1) as uuid:
        assert uuid == "GPU-b"


def test_the_lease_waits_until_the_device_is_free(tmp_path: Path) -> None:
    driver = Driver()
    leases = GpuLeases(tmp_path / "gpus", ("GPU-a",), driver)
    with leases.lease(1):
        driver.busy = {"GPU-a": [1]}
        threading.Timer(0.3, driver.busy.clear).start()
    assert driver.busy == {}


def test_a_device_that_stays_in_use_is_kept_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "FREE_S", 0.2)
    driver = Driver()
    leases = GpuLeases(tmp_path / "gpus", ("GPU-a",), driver)
    with pytest.raises(InfraError, match="still in use"), leases.lease(1):
        driver.busy = {"GPU-a": [1]}
    driver.busy = {}
    with pytest.raises(InfraError, match="no GPU became free"), leases.lease(0.1):
        pass
    leases.close()
    with leases.lease(0.1) as uuid:
        assert uuid == "GPU-a"


def test_only_docker_leases_gpus() -> None:
    config = SandboxConfig(backend="bubblewrap", gpus=("GPU-a",), memory_mb=256, slots=1)
    with pytest.raises(MlrlError, match=r"bubblewrap can't lease GPUs: set sandbox\.backend=docker"):
        open_sandbox(config, run_key="gpu")
