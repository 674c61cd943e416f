"""The servers' base model as the instrumenters use it (``instrumentation.FrozenModel``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlrl_core.agent.encoding import chat_prompt_ids, load_tokenizer, neutralised
from mlrl_core.generation.choosing import choose_answers
from mlrl_core.generation.vllm.client import BASE, Completion
from mlrl_core.generation.vllm.pool import ServerPool
from mlrl_core.generation.vllm.server import Server
from mlrl_core.instrumentation.frozen import FrozenModelError, Question


class ServedFrozenModel:
    """Greedy answers of the model without any adapter; questions run beside the policy's sampling.

    The same choices as ``TransformersModel`` makes, token by token among those that are still possible: a server's own
    constrained decoding would also allow a choice to be spelt in tokens that the model never uses for it.
    """

    def __init__(self, pool: ServerPool, backbone_dir: Path, deadline_s: float = 600.0) -> None:
        self._pool = pool
        self._limit = pool.max_context
        self._deadline_s = deadline_s
        self._tokenizer = load_tokenizer(backbone_dir)

    def choose(self, instruction: str, questions: Sequence[Question]) -> list[int]:
        """See ``FrozenModel.choose``. Raises FrozenModelError when they are too long, InfraError without a server."""

        def pick(ids: list[int], allowed: Sequence[int]) -> int:
            self._check(len(ids) + 1)
            return self._ask(ids, 1, allowed).ids[0]

        return choose_answers(chat_prompt_ids(self._tokenizer, instruction), questions, self._encode, pick)

    def complete(self, instruction: str, start: str, max_tokens: int) -> tuple[str, bool]:
        """See ``FrozenModel.complete``. Raises as ``choose`` does."""
        prompt = [*chat_prompt_ids(self._tokenizer, instruction), *self._encode(start)]
        self._check(len(prompt) + 1)
        answer = self._ask(prompt, min(max_tokens, self._limit - len(prompt)), None)
        ended = answer.finish_reason == "stop"
        ids = answer.ids[:-1] if ended else answer.ids
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)), ended

    def _ask(self, prompt: Sequence[int], max_tokens: int, allowed: Sequence[int] | None) -> Completion:
        def ask(server: Server) -> Completion:
            return server.client.complete(
                BASE, prompt, max_tokens=max_tokens, temperature=0.0, allowed=allowed, deadline_s=self._deadline_s
            )

        return self._pool.call(ask, self._deadline_s)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(neutralised(self._tokenizer, text), add_special_tokens=False)["input_ids"])

    def _check(self, tokens: int) -> None:
        if tokens >= self._limit:
            raise FrozenModelError(f"{tokens} tokens are more than the model's {self._limit}")
