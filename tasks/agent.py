"""The policy as the flows see it: a wave number in, solutions out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.agent import parse_response, solve_prompt
from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens, load_tokenizer
from mlrl_core.config import RunConfig
from mlrl_core.experience import solution_id_of, solution_seed
from mlrl_core.generation.protocol import Generated, GenerationRequest, Generator
from mlrl_core.records import Solution

if TYPE_CHECKING:
    from mlrl_core.competitions import Competition


class PolicyAgent:
    """Samples the solve prompt of one competition. ``decode`` turns response ids into text, for execution only."""

    def __init__(
        self,
        config: RunConfig,
        generator: Generator,
        prompt_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self._config = config
        self._generator = generator
        self._prompt_ids = tuple(prompt_ids)
        self._decode = decode

    def __call__(self, wave: int, policy_version: int, size: int) -> list[Solution]:
        """The ``size`` solutions of the wave in slot order."""
        requests = [
            GenerationRequest(
                solution_id_of(wave, slot), self._prompt_ids, solution_seed(self._config.seed, wave, slot)
            )
            for slot in range(size)
        ]
        generated = self._generator.generate(requests, policy_version)
        return [
            self._solution(wave, slot, policy_version, request, answer)
            for slot, (request, answer) in enumerate(zip(requests, generated, strict=True))
        ]

    def _solution(
        self, wave: int, slot: int, policy_version: int, request: GenerationRequest, answer: Generated
    ) -> Solution:
        if answer.solution_id != request.solution_id:
            raise ValueError(f"the generator answered {answer.solution_id} to {request.solution_id}")
        text = self._decode(answer.response_ids)
        parsed = parse_response(text)
        return Solution(
            solution_id=request.solution_id,
            competition_id=self._config.competition.id,
            wave=wave,
            slot=slot,
            prompt_kind="solve",
            parent_id=None,
            policy_version=policy_version,
            seed=request.seed,
            prompt_ids=request.prompt_ids,
            response_ids=answer.response_ids,
            log_probs=answer.log_probs,
            finish_reason=answer.finish_reason,
            text=text,
            plan=parsed.plan,
            code=parsed.code,
            generated_at=time.time(),
            generation_s=answer.seconds,
        )


def open_agent(config: RunConfig, competition: Competition, backbone: Path, generator: Generator) -> PolicyAgent:
    """The agent of a run: the solve prompt in the backbone's own tokens, once, for every wave."""
    tokenizer = load_tokenizer(backbone)
    header = competition.sample_submission_path.read_text().split("\n", 1)[0].strip()
    prompt = solve_prompt(
        competition, header, config.sandbox, config.prompt.max_tokens, lambda text: count_tokens(tokenizer, text)
    )

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True))

    return PolicyAgent(config, generator, chat_prompt_ids(tokenizer, prompt), decode)
