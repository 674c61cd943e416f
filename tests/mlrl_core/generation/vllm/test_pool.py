"""Requests over several servers: the bound, and what a server's faults come to."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mlrl_core.config import RunConfig, load_config
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm import pool as pools
from mlrl_core.generation.vllm.client import Completion
from mlrl_core.generation.vllm.pool import ServerPool
from mlrl_core.generation.vllm.process import ServerSpec
from mlrl_core.generation.vllm.server import Adapter, Server
from mlrl_core.nano.shipped import shipped_dir
from tests.mlrl_core.generation.vllm.fake_server import FakeServer


class _House:
    """Fake servers and a pool over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.needed: list[Adapter] = []
        self.servers: list[FakeServer] = []
        self.pools: list[ServerPool] = []

    def server(self, **settings: object) -> FakeServer:
        self.servers.append(FakeServer(**settings))  # type: ignore[arg-type]
        return self.servers[-1]

    def pool(self, *servers: FakeServer, bound: int = 8) -> ServerPool:
        places = ", ".join(f'"{each.url}"' for each in servers)
        self.pools.append(
            ServerPool(
                config(f"generation.servers=[{places}]", f"generation.max_in_flight={bound}"),
                self.folder,
                self.folder,
                lambda: self.needed,
            )
        )
        return self.pools[-1]

    def adapter(self, version: int, expected: float = -1.0) -> Adapter:
        return Adapter(version, f"run-v{version:06d}", self.folder / str(version), ((1, 2, 3), (expected, expected)))


def config(*overrides: str) -> RunConfig:
    return load_config("nano", ["generation.backend=vllm", *overrides])


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_House]:
    monkeypatch.setattr(pools, "_REST_S", 0.1)
    made = _House(tmp_path)
    yield made
    for pool in made.pools:
        pool.close()
    for server in made.servers:
        server.close()


def ask(model: str = "base", deadline_s: float = 5.0) -> Callable[[Server], Completion]:
    return lambda server: server.client.complete(model, (1, 2), max_tokens=2, temperature=1.0, deadline_s=deadline_s)


def together(pool: ServerPool, count: int, model: str = "base") -> list[Completion]:
    """``count`` calls at once."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda _: pool.call(ask(model), 10), range(count)))


def test_all_are_in_flight_up_to_the_bound_over_all_servers(house: _House) -> None:
    first, second = house.server(), house.server()
    first.delay_s = second.delay_s = 0.2
    assert len(together(house.pool(first, second, bound=4), 16)) == 16
    assert (first.most_active, second.most_active) == (4, 4)


@pytest.mark.parametrize("fault", ["error", "poisoned", "garbage"])
def test_a_server_that_fails_is_left_for_another(house: _House, fault: str) -> None:
    good, bad = house.server(), house.server()
    bad.fault = fault
    assert len(together(house.pool(bad, good), 12)) == 12
    assert len(good.served) == 12


def test_a_server_that_is_gone_is_left_for_another(house: _House) -> None:
    good, gone = house.server(), house.server()
    pool = house.pool(gone, good)
    gone.close()
    assert len(together(pool, 12)) == 12


def test_one_that_comes_back_gets_its_adapters_again(house: _House) -> None:
    server = house.server()
    pool = house.pool(server)
    house.needed = [house.adapter(3)]
    pool.push(house.needed[0])
    server.healthy, server.fault = False, "error"

    def recover() -> None:
        server.adapters.clear()
        server.healthy, server.fault = True, "ok"

    timer = threading.Timer(1.0, recover)
    timer.start()
    assert len(together(pool, 6, "run-v000003")) == 6  # longer than four tries last: one that is away does not count
    assert set(server.adapters) == {"run-v000003"}
    timer.join()


def test_a_restarted_one_that_takes_no_adapter_is_left_for_another(house: _House) -> None:
    """It has lost the adapter and another base model stands there now: its requests go where the version is."""
    good, changed = house.server(), house.server()
    pool = house.pool(changed, good, bound=64)
    house.needed = [house.adapter(3)]
    pool.push(house.needed[0])
    changed.adapters.clear()
    changed.canary = -2.0
    assert len(together(pool, 12, "run-v000003")) == 12
    assert changed.adapters == {}
    good.adapters.clear()
    good.canary = -2.0
    with pytest.raises(InfraError, match=r"failed 4 times.*can't be loaded again: .*another base model"):
        pool.call(ask("run-v000003"), 10)


def test_one_that_can_not_start_does_not_keep_the_others_starting(
    house: _House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would take five minutes; its process is ended as well."""
    program = "import sys, time; time.sleep(0 if sys.argv[-1] == 'die' else 300)"
    arguments = ServerSpec.arguments

    def fake_arguments(spec: ServerSpec, port: int) -> list[str]:
        assert arguments(spec, port)
        return [sys.executable, "-c", program, "die" if spec.device == "cpu:0" else "wait"]

    monkeypatch.setattr(ServerSpec, "arguments", fake_arguments)
    python, servers = f"generation.python={sys.executable}", 'generation.servers=["cpu:0", "cpu:1"]'
    began = time.monotonic()
    with pytest.raises(InfraError, match="ended while starting"):
        ServerPool(config(python, servers), shipped_dir(), house.folder, list)
    assert time.monotonic() - began < 20
    assert not [each for each in psutil.Process().children(recursive=True) if "wait" in each.cmdline()[-1:]]


def test_a_command_that_starts_something_else_is_one_line(house: _House) -> None:
    for command, words in (
        (["/nowhere/vllm"], "No such file"),
        (["false"], "ended while starting; log .*server-0.log"),
    ):
        with pytest.raises(InfraError, match=words) as failed:
            ServerPool(config(f"generation.command={command}"), shipped_dir(), house.folder, list)
        assert "\n" not in str(failed.value)


def test_what_stays_broken_is_an_error_with_its_reason(house: _House) -> None:
    server = house.server()
    pool = house.pool(server)
    server.fault = "error"
    with pytest.raises(InfraError, match=r"failed 4 times.*broken"):
        pool.call(ask(), 10)
    server.fault = "refuse"
    with pytest.raises(MlrlError, match=r"refuses a request: maximum context"):
        pool.call(ask(), 10)
    server.healthy, server.fault = False, "error"
    began = time.monotonic()
    with pytest.raises(InfraError, match=r"had room in time; the last error: .*broken"):
        pool.call(ask(), 1)
    assert time.monotonic() - began < 3
    server.healthy, server.fault, server.delay_s = True, "ok", 1.0
    with pytest.raises(InfraError, match=r"timed out|ReadTimeout"):
        pool.call(ask(deadline_s=0.2), 20)


def test_a_push_is_everywhere_or_nowhere(house: _House) -> None:
    first, second = house.server(), house.server()
    second.canary = -1.5
    pool = house.pool(first, second)
    with pytest.raises(MlrlError, match=r"from the learner's"):
        pool.push(house.adapter(1))
    assert first.adapters == second.adapters == {}
    second.canary = -1.0
    pool.push(house.adapter(1))
    assert set(first.adapters) == set(second.adapters) == {"run-v000001"}
    second.fault, second.healthy = "error", False
    with pytest.raises(InfraError):
        pool.push(house.adapter(2))
    assert set(first.adapters) == {"run-v000001"}


def test_a_push_repeated_costs_nothing_and_a_stale_one_is_replaced(house: _House) -> None:
    server = house.server()
    pool = house.pool(server)
    adapter = house.adapter(1)
    server.adapters[adapter.name] = str(adapter.folder)  # of a run that was killed, or of one there before it
    pool.push(adapter)
    asked = len(server.served)
    assert asked == 1  # the canary
    pool.push(adapter)
    assert len(server.served) == asked
    server.adapters["run-v000002"] = "/elsewhere"
    with pytest.raises(MlrlError, match="another run has the same name"):
        pool.push(house.adapter(2))
    assert server.adapters["run-v000002"] == "/elsewhere"


def test_closing_leaves_a_server_at_a_url_without_our_adapters(house: _House) -> None:
    server = house.server()
    pool = house.pool(server)
    house.needed = [house.adapter(1)]
    pool.push(house.needed[0])
    pool.close()
    assert server.adapters == {}
    assert server.get("/health")[0] == 200
    with pytest.raises(InfraError, match="stopped"):
        pool.call(ask(), 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "Qwen"}, "calls its model Qwen: start it with --served-model-name base"),
        ({"version": "0.29.1"}, "runs vLLM 0.29.1; mlrl is tested with 0.32.0"),
        ({"context": 100}, "has a context of 100 tokens"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(house: _House, settings: dict[str, object], message: str) -> None:
    with pytest.raises(MlrlError, match=message) as refused:
        house.pool(house.server(**settings))
    assert "\n" not in str(refused.value)


def test_the_distribution_is_said_by_value(house: _House) -> None:
    server = house.server()
    house.pool(server).call(ask(), 10)
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    neutral |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": 0}
    assert {key: server.served[0][key] for key in neutral} == neutral
    assert server.served[0]["return_token_ids"] is True
