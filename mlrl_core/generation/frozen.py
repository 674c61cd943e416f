"""A frozen language model in this process, as the instrumenters use it (``instrumentation.FrozenModel``)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from mlrl_core.agent.encoding import chat_prompt_ids, neutralised
from mlrl_core.errors import InfraError
from mlrl_core.generation.choosing import choose_answers
from mlrl_core.generation.in_process import end_ids
from mlrl_core.instrumentation.frozen import FrozenModelError, Question


class TransformersModel:
    """Greedy answers of the model in ``model_dir``, without any adapter. One call at a time: the others wait, at most
    ``wait_s`` seconds."""

    def __init__(self, model_dir: Path, dtype: str, wait_s: float = 600.0) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype)).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self._limit = int(getattr(self._model.config, "max_position_embeddings", 1 << 30))
        self._ends = end_ids(self._model.config)
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._ids: list[int] = []  # what the cache holds
        self._cache = DynamicCache(config=self._model.config)

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        """See ``FrozenModel.choose``. All questions in one turn: what they share is read once. Raises FrozenModelError
        when they are too long, InfraError when the model is busy for too long."""

        def pick(ids: list[int], allowed: Sequence[int]) -> int:
            self._check(len(ids) + 1)
            return allowed[int(self._next_logits(ids)[list(allowed)].argmax())]

        prompt = chat_prompt_ids(self._tokenizer, instruction)
        with self._turn(), torch.inference_mode():
            return choose_answers(prompt, questions, self._encode, pick)

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        """See ``FrozenModel.complete``. Raises as ``choose`` does."""
        prompt = [*chat_prompt_ids(self._tokenizer, instruction), *self._encode(start)]
        self._check(len(prompt) + 1)
        answer: list[int] = []
        ended = False
        with self._turn(), torch.inference_mode():
            while len(answer) < min(max_tokens, self._limit - len(prompt)):
                token = int(self._next_logits([*prompt, *answer]).argmax())
                if token in self._ends:
                    ended = True
                    break
                answer.append(token)
        return str(self._tokenizer.decode(answer, skip_special_tokens=True)), ended

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(neutralised(self._tokenizer, text), add_special_tokens=False)["input_ids"])

    def _check(self, tokens: int) -> None:
        if tokens > self._limit:
            raise FrozenModelError(f"{tokens} tokens are more than the model's {self._limit}")

    def _next_logits(self, ids: list[int]) -> torch.Tensor:
        """Logits [vocabulary] behind ``ids``. What they share with the last question is not computed again: the
        program stands before the questions about it."""
        shared = 0
        for mine, theirs in zip(ids[:-1], self._ids, strict=False):
            if mine != theirs:
                break
            shared += 1
        try:
            shared = self._keep(shared)
            logits: torch.Tensor = self._model(
                input_ids=torch.tensor([ids[shared:]]), past_key_values=self._cache, use_cache=True, logits_to_keep=1
            ).logits[0, -1]
        except BaseException:
            self._keep(0)  # how much the cache holds is not known any more
            raise
        self._ids = list(ids)
        return logits

    def _keep(self, shared: int) -> int:
        """Shorten the cache to its first ``shared`` tokens, or to none where a layer can't be shortened."""
        if shared:
            try:
                self._cache.crop(shared - len(self._ids))  # negative: so many tokens are removed
                return shared
            except RuntimeError:
                pass
        self._cache = DynamicCache(config=self._model.config)
        self._ids = []
        return 0

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._wait_s):
            raise InfraError(f"the instrumenter's model was busy for {self._wait_s:g} s")
        try:
            yield
        finally:
            self._lock.release()
