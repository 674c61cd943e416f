"""A warm start by an adapter: it teaches, is made once per recipe, and leaves a plain model folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from mlrl_core.competitions import Competition, prepare_competition
from mlrl_core.config import RunConfig, load_config
from mlrl_core.config.load import dump_toml
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.models.warmstart import _lesson, prepare_warmstart
from tests.models import TINY, save_llama

SMALL = ("warmstart.demonstrations=48", "warmstart.batch_size=8", "warmstart.epochs=2", "policy.lora.r=8")
FAST = ("warmstart.learning_rate=1e-2", "learner.autocast=false", "prompt.max_tokens=200", "warmstart.threads=1")


@pytest.fixture(scope="module")
def diamonds(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    return prepare_competition("diamonds", tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield save_llama(tmp_path_factory.mktemp("base"))
    torch.set_num_threads(before)


def small(base: Path, *overrides: str, seed: int | None = None) -> RunConfig:
    return load_config("smollm2", [f"policy.model={base}", *SMALL, *FAST, *overrides], seed)


def no_making(text: str) -> None:
    pytest.fail(f"it was made again: {text}")


@torch.no_grad()
def loss_of(folder: Path, prompt: tuple[int, ...], responses: Sequence[tuple[int, ...]]) -> float:
    """Mean cross-entropy of the responses' tokens after the prompt, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    losses: list[float] = []
    for response in responses:
        table = torch.log_softmax(model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1], -1)
        losses += (-table.gather(1, torch.tensor(response)[:, None])[:, 0]).tolist()
    return sum(losses) / len(losses)


def test_it_teaches_and_is_made_once(base: Path, diamonds: Competition, tmp_path: Path) -> None:
    said: list[str] = []
    made = prepare_warmstart(base, small(base), diamonds, diamonds.public_dir, tmp_path, said.append)
    assert said[-1].startswith("warm start: step 12 of 12, loss ")
    facts = json.loads((made / "warmstart.json").read_text())
    assert facts["demonstrations"] == 48
    first = float(said[0].rsplit(" ", 1)[1])
    assert facts["loss"] < first - 0.3
    # What was learned is in the plain weights: no adapter lies beside them, and nothing is half made.
    lesson = _lesson(base, small(base), diamonds, diamonds.public_dir)
    some = lesson.responses[:8]
    assert loss_of(made, lesson.prompt_ids, some) == pytest.approx(facts["loss"], abs=0.2)
    assert loss_of(base, lesson.prompt_ids, some) > facts["loss"] + 0.3
    assert not list(made.glob("adapter*"))
    assert [each.name for each in tmp_path.iterdir()] == [made.name]
    # The run's seed is no part of the recipe, the base's weights are.
    again = prepare_warmstart(base, small(base, seed=7), diamonds, diamonds.public_dir, tmp_path, no_making)
    assert again == made
    other = save_llama(tmp_path / "other", TINY | {"num_hidden_layers": 1})
    changed: list[str] = []
    prepare_warmstart(other, small(base), diamonds, diamonds.public_dir, tmp_path / "cache", changed.append)
    assert changed


def test_a_folder_without_safetensors_is_one_line(diamonds: Competition, tmp_path: Path) -> None:
    with pytest.raises(MlrlError, match="holds none"):
        prepare_warmstart(tmp_path, small(tmp_path), diamonds, diamonds.public_dir, tmp_path / "c", no_making)


def test_whoever_is_told_may_stop_it(base: Path, diamonds: Competition, tmp_path: Path) -> None:
    def stop(text: str) -> None:
        assert [each for each in psutil.Process().children() if "mlrl_core.models.fine_tuning" in each.cmdline()]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_warmstart(base, small(base, "warmstart.seed=1"), diamonds, diamonds.public_dir, tmp_path, stop)
    assert not [each for each in psutil.Process().children() if "mlrl_core.models.fine_tuning" in each.cmdline()]
    assert list(tmp_path.iterdir()) == []


def test_it_ends_with_whoever_started_it(base: Path, tmp_path: Path) -> None:
    """Whose end closes the pipe to its standard input, however that comes."""
    (tmp_path / "config.toml").write_text(dump_toml(small(base, "warmstart.epochs=1000")))
    (tmp_path / "lesson.json").write_text(json.dumps([[5, 6], [[7, 8, 1]] * 64]))
    command = [sys.executable, "-m", "mlrl_core.models.fine_tuning", str(tmp_path), str(base), str(tmp_path / "made")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline().startswith(b"warm start: step 1 of 8000")
    child.stdin.close()
    assert child.wait(10) == 3
    child.stdout.close()


def test_a_model_that_can_not_be_trained_is_one_line(diamonds: Competition, tmp_path: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = save_llama(tmp_path / "windows")
    shape = {**TINY, "use_sliding_window": True, "max_window_layers": 0, "sliding_window": 16}
    Qwen2ForCausalLM(Qwen2Config(**shape)).save_pretrained(folder)
    with pytest.raises(MlrlError, match=r"sliding_attention can't be trained in packs") as refused:
        prepare_warmstart(folder, small(folder), diamonds, diamonds.public_dir, tmp_path / "cache", no_making)
    assert "\n" not in str(refused.value)
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InfraError, match=r"the warm start ended with status 1: .*safetensor") as failed:
        prepare_warmstart(folder, small(folder), diamonds, diamonds.public_dir, tmp_path / "cache", no_making)
    assert "\n" not in str(failed.value)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["prompt.contents=full"], "warm-started on the short prompt"),
        (["competition.others=['titanic']"], "needs a policy without a warm start"),
    ],
)
def test_what_a_warm_start_does_not_know_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(MlrlError, match=words):
        load_config("smollm2", overrides)
    load_config("smollm2", [*overrides, "warmstart.demonstrations=0"])
