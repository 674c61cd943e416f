"""Generation by a real vLLM server on the CPU (learner.md 9): its numbers, its versions, its deaths."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from mlrl_core.errors import MlrlError
from mlrl_core.generation import GenerationRequest
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.generation.vllm.client import RefusedError, UnknownModelError
from mlrl_core.generation.vllm.frozen import ServedFrozenModel
from mlrl_core.generation.vllm.generator import VllmGenerator
from mlrl_core.generation.vllm.process import SLOTS
from mlrl_core.instrumentation import FrozenModelError
from tests.integration import vllm_fakes as fakes

pytestmark = [pytest.mark.vllm, pytest.mark.integration]

PROMPTS = ((2, 3, 4), (5, 6), (7, 8, 9, 10, 2), (3,))


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A backbone and its versions 0 (untouched), 1 and 2."""
    fakes.require_vllm()
    folder = tmp_path_factory.mktemp("vllm")
    backbone = fakes.save_backbone(folder / "backbone")
    return backbone, [fakes.save_version(backbone, folder / f"{n:05d}", n) for n in range(3)]


@pytest.fixture(scope="module")
def generator(versions: tuple[Path, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmGenerator]:
    backbone, adapters = versions
    made = VllmGenerator(fakes.run_config(backbone), backbone, tmp_path_factory.mktemp("run"))
    process = made.servers[0].process
    assert process is not None
    assert process.pid is not None
    started = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    made.load_version(0, adapters[0])
    yield made
    made.close()
    assert len(started) > 2
    assert psutil.wait_procs(started, timeout=5)[1] == []


def requests(count: int, first: int = 0) -> list[GenerationRequest]:
    return [GenerationRequest(f"s{i}", PROMPTS[i % len(PROMPTS)], seed=100 + i) for i in range(first, first + count)]


def test_log_probs_are_the_trainers(generator: VllmGenerator, versions: tuple[Path, list[Path]]) -> None:
    backbone, adapters = versions
    first: dict[int, list[float]] = {}
    for version, adapter in enumerate(adapters):
        generator.load_version(version, adapter)
        answers = sorted(generator.generate(requests(12), version), key=lambda each: int(each.solution_id[1:]))
        assert [each.solution_id for each in answers] == [f"s{i}" for i in range(12)]
        assert {each.policy_version for each in answers} == {version}
        model = fakes.with_adapter(backbone, adapter)
        gaps = []
        for request, answer in zip(requests(12), answers, strict=True):
            expected = fakes.log_probs(model, request.prompt_ids, answer.response_ids, fakes.TEMPERATURE)
            gaps += [abs(a - b) for a, b in zip(answer.log_probs, expected, strict=True)]
            ended = answer.response_ids[-1] == model.config.eos_token_id
            assert answer.finish_reason == ("stop" if ended else "length")
            assert ended or len(answer.response_ids) == 48
        assert sum(gaps) / len(gaps) < 1e-3
        first[version] = [each.log_probs[0] for each in answers]
    assert len({tuple(each) for each in first.values()}) == 3


def test_requests_end_on_the_version_they_began_with(
    generator: VllmGenerator, versions: tuple[Path, list[Path]]
) -> None:
    backbone, adapters = versions
    generator.load_version(1, adapters[1])
    stream = generator.generate(requests(16), 1)
    answers = [next(stream)]
    generator.load_version(2, adapters[2])
    assert {"-v000001", "-v000002"} == {name[-8:] for name in generator.servers[0].client.models()[1]}
    newer = list(generator.generate(requests(2), 2))
    answers += list(stream)
    assert {each.policy_version for each in answers} == {1}
    assert {each.policy_version for each in newer} == {2}
    assert generator.servers[0].starts == 1  # a push under load leaves the server alive
    assert {name[-8:] for name in generator.servers[0].client.models()[1]} == {"-v000002"}
    model = fakes.with_adapter(backbone, adapters[1])
    last = answers[-1]
    expected = fakes.log_probs(model, PROMPTS[int(last.solution_id[1:]) % 4], last.response_ids, fakes.TEMPERATURE)
    assert max(abs(a - b) for a, b in zip(last.log_probs, expected, strict=True)) < 1e-3
    with pytest.raises(ValueError, match="version 1 was asked for"):
        generator.generate(requests(1), 1)


def test_a_version_that_may_not_be_served_leaves_the_one_before_it(
    generator: VllmGenerator, versions: tuple[Path, list[Path]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone, adapters = versions
    generator.load_version(2, adapters[2])
    failed = generator.metrics()["adapter/push_fail"]
    broken = fakes.save_version(backbone, tmp_path / "00003", 3)
    weights = load_file(broken / "adapter_model.safetensors")
    weights[next(iter(weights))][0, 0] = torch.nan
    save_file(weights, broken / "adapter_model.safetensors")
    generator.load_version(3, broken)
    assert "not finite" in caplog.text
    other = fakes.save_version(backbone, tmp_path / "00004", 4)
    manifest = json.loads((other.parent / "manifest.json").read_text())
    manifest["canary_log_probs"] = [value - 0.1 for value in manifest["canary_log_probs"]]
    (other.parent / "manifest.json").write_text(json.dumps(manifest))
    generator.load_version(4, other)
    assert "from the learner's" in caplog.text
    assert generator.metrics()["adapter/push_fail"] == failed + 2
    assert {name[-8:] for name in generator.servers[0].client.models()[1]} == {"-v000002"}
    assert {each.policy_version for each in generator.generate(requests(4), 4)} == {2}
    with pytest.raises(MlrlError, match="not a readable adapter"):  # the third in a row
        generator.load_version(5, tmp_path)
    generator.load_version(1, adapters[1])
    assert {each.policy_version for each in generator.generate(requests(4), 1)} == {1}


def test_what_the_server_itself_says(
    generator: VllmGenerator, versions: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    backbone, adapters = versions
    client = generator.servers[0].client
    with pytest.raises(UnknownModelError):
        client.load_adapter("nowhere", tmp_path / "nowhere")
    with pytest.raises(UnknownModelError):
        client.unload_adapter("nowhere")
    client.load_adapter("twice", adapters[1])
    client.load_adapter("twice", adapters[1])
    client.unload_adapter("twice")
    for name, settings in (("wide", {"rank": 16}), ("dora", {"use_dora": True})):
        folder = fakes.save_version(backbone, tmp_path / name, 1, **settings)
        with pytest.raises(RefusedError):
            client.load_adapter(name, folder)
        with pytest.raises(UnknownModelError):
            client.complete(name, (1, 2), max_tokens=1, temperature=1.0, deadline_s=30)
    with pytest.raises(RefusedError, match="maximum context"):
        client.complete("base", (1, 2) * 600, max_tokens=1, temperature=1.0, deadline_s=30)
    assert client.is_healthy()


def test_more_adapters_than_slots_while_their_files_are_there(
    generator: VllmGenerator, versions: tuple[Path, list[Path]]
) -> None:
    client = generator.servers[0].client
    names = [f"extra-{n}" for n in range(5)]
    for number, name in enumerate(names):
        client.load_adapter(name, versions[1][number % 2 + 1])
    answers = [client.complete(name, (2, 3), max_tokens=4, temperature=0.0, deadline_s=60) for name in names]
    again = client.complete(names[0], (2, 3), max_tokens=4, temperature=0.0, deadline_s=60)
    assert again.log_probs == pytest.approx(answers[0].log_probs, abs=1e-4)
    for name in names:
        client.unload_adapter(name)


def test_the_base_model_is_itself_beside_adapters_in_every_slot(
    generator: VllmGenerator, versions: tuple[Path, list[Path]]
) -> None:
    client = generator.servers[0].client
    names = [f"beside-{n}" for n in range(SLOTS)]
    for name in names:
        client.load_adapter(name, versions[1][2])
    ids = [7 * i % 90 + 2 for i in range(12)]
    backbone = fakes.with_adapter(versions[0], versions[1][0])
    expected = fakes.log_probs(backbone, ids[:1], ids[1:], 1.0)
    with ThreadPoolExecutor(SLOTS) as threads:
        others = [
            threads.submit(client.complete, name, (2, 3), max_tokens=400, temperature=1.0, deadline_s=120)
            for name in names
        ]
        found = [client.canary("base", ids) for _ in range(5)]
        assert not all(other.done() for other in others)
        for other in others:
            other.result()
    for each in found:
        assert each == pytest.approx(expected, abs=1e-3)
    for name in names:
        client.unload_adapter(name)


def test_the_base_model_answers_as_it_does_in_this_process(
    generator: VllmGenerator, versions: tuple[Path, list[Path]]
) -> None:
    here = TransformersModel(versions[0], "float32")
    there = ServedFrozenModel(generator.pool, versions[0])
    choices = ["1", "12", "x = 3", "return"]
    for question in ("pick a line", "another", "and one more"):
        questions = [("line ", choices), (", or ", choices)]
        assert there.choose(question, questions) == here.choose(question, questions)
        assert there.complete(question, "go:", 12) == here.complete(question, "go:", 12)
    with pytest.raises(FrozenModelError):
        there.choose("word " * 2000, [("", choices)])


def test_a_server_by_url_is_checked_and_left_running(
    generator: VllmGenerator, versions: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    backbone, adapters = versions
    url = generator.servers[0].url
    by_url = f'generation.servers=["{url}"]'
    guest = VllmGenerator(fakes.run_config(backbone, by_url), backbone, tmp_path / "guest")
    guest.load_version(1, adapters[1])
    assert len(list(guest.generate(requests(4), 1))) == 4
    guest.close()
    assert generator.servers[0].client.is_healthy()
    assert not any(name.startswith("guest") for name in generator.servers[0].client.models()[1])

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(MlrlError, match=r"does not answer.*correct the URL"):
            VllmGenerator(
                fakes.run_config(backbone, f'generation.servers=["http://127.0.0.1:{port}"]'), backbone, tmp_path / "a"
            )
        with pytest.raises(MlrlError, match=f"port {port} is taken"):
            VllmGenerator(fakes.run_config(backbone, f"generation.port={port}"), backbone, tmp_path / "b")
    with pytest.raises(MlrlError, match="has a context of"):
        VllmGenerator(fakes.run_config(backbone, by_url, max_new_tokens=900), backbone, tmp_path / "c")
    with pytest.raises(MlrlError, match="the model's context is 1024 tokens"):
        VllmGenerator(fakes.run_config(backbone, max_new_tokens=1000), backbone, tmp_path / "d")

    stranger = fakes.save_backbone(tmp_path / "stranger", seed=1)
    guest = VllmGenerator(fakes.run_config(stranger, by_url), stranger, tmp_path / "e")
    with pytest.raises(MlrlError, match="another base model"):
        guest.load_version(0, fakes.save_version(stranger, tmp_path / "f", 0))
    with pytest.raises(MlrlError, match="does not take the adapter"):
        guest.load_version(0, fakes.save_version(backbone, tmp_path / "g", 1, rank=32))
    guest.close()


def test_a_wave_outlives_its_server(generator: VllmGenerator, versions: tuple[Path, list[Path]]) -> None:
    """Killed in the middle: started again, the version loaded again, every request answered once."""
    backbone, adapters = versions
    generator.load_version(2, adapters[2])
    process = generator.servers[0].process
    assert process is not None
    assert process.pid is not None
    server = psutil.Process(process.pid).children()[0]
    stream = generator.generate(requests(40), 2)
    answers = [next(stream)]
    server.send_signal(signal.SIGKILL)
    answers += list(stream)
    assert sorted(each.solution_id for each in answers) == sorted(each.solution_id for each in requests(40))
    assert {each.policy_version for each in answers} == {2}
    assert psutil.Process(process.pid).children()[0].pid != server.pid
    model = fakes.with_adapter(backbone, adapters[2])
    for answer in answers[-3:]:
        prompt = PROMPTS[int(answer.solution_id[1:]) % 4]
        expected = fakes.log_probs(model, prompt, answer.response_ids, fakes.TEMPERATURE)
        assert max(abs(a - b) for a, b in zip(answer.log_probs, expected, strict=True)) < 1e-3


def test_stopping_ends_a_pass_at_once(versions: tuple[Path, list[Path]], generator: VllmGenerator) -> None:
    """Last of all: the module's server is ended under its requests."""
    generator.load_version(1, versions[1][1])
    stream = generator.generate(requests(64), 1)
    next(stream)
    ended = threading.Thread(target=generator.close)
    began = time.monotonic()
    ended.start()
    with pytest.raises(Exception, match=r"stopped|vLLM|http"):
        list(stream)
    ended.join(40)
    assert not ended.is_alive()
    assert time.monotonic() - began < 30
    assert os.path.exists(generator.servers[0].process.log)  # type: ignore[union-attr]
