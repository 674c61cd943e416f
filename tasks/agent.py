"""The policy as the flows see it: a wave number in, solutions out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlrl_core.agent import PromptWriter, parse_response
from mlrl_core.agent.encoding import chat_prompt_ids, count_tokens, load_tokenizer
from mlrl_core.config import RunConfig
from mlrl_core.experience import RunDirectory, solution_id_of, solution_seed
from mlrl_core.generation.protocol import Generated, GenerationRequest, Generator
from mlrl_core.records import Solution
from tasks.prompting import Prompt, WavePrompts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mlrl_core.competitions import Competition


_SAMPLE_LINES, _SAMPLE_LINE_CHARS = 4, 4096


class PolicyAgent:
    """Samples the prompts of a wave. ``prompts`` gives them for its number and some of its slots; ``decode`` turns
    response ids into text, for execution only."""

    def __init__(
        self,
        config: RunConfig,
        generator: Generator,
        prompts: Callable[[int, Sequence[int]], Sequence[Prompt]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self._config = config
        self._generator = generator
        self._prompts = prompts
        self._decode = decode

    def __call__(self, wave: int, policy_version: int, slots: Sequence[int]) -> Iterator[Solution]:
        """The solutions of these slots of the wave, as each is sampled."""
        asked: dict[str, tuple[int, Prompt, GenerationRequest]] = {}
        for slot, prompt in zip(slots, self._prompts(wave, slots), strict=True):
            seed = solution_seed(self._config.seed, wave, slot)
            request = GenerationRequest(solution_id_of(wave, slot), prompt.ids, seed)
            asked[request.solution_id] = (slot, prompt, request)
        requests = [request for _, _, request in asked.values()]
        for answer in self._generator.generate(requests, policy_version):
            if answer.solution_id not in asked:
                raise ValueError(f"the generator answered {answer.solution_id}, which nobody asked for, or twice")
            slot, prompt, request = asked.pop(answer.solution_id)
            yield self._solution(wave, slot, prompt, request, answer)
        if asked:
            raise ValueError(f"the generator gave no answer to {min(asked)}")

    def _solution(
        self,
        wave: int,
        slot: int,
        prompt: Prompt,
        request: GenerationRequest,
        answer: Generated,
    ) -> Solution:
        text = self._decode(answer.response_ids)
        parsed = parse_response(text)
        return Solution(
            solution_id=request.solution_id,
            competition_id=prompt.competition_id,
            wave=wave,
            slot=slot,
            prompt_kind=prompt.kind,
            parent_id=prompt.parent_id,
            policy_version=answer.policy_version,
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
            parent_reward=prompt.parent_reward,
        )


def prompt_writer(
    config: RunConfig, competition: Competition, tokenizer: PreTrainedTokenizerBase, packages: Mapping[str, str]
) -> PromptWriter:
    """The writer of a competition's prompts, in the tokens of ``tokenizer``."""
    from mlrl_core.competitions.preview import data_preview

    def count(text: str) -> int:
        return count_tokens(tokenizer, text)

    path = competition.sample_submission_path
    with path.open(encoding="utf-8", errors="replace") as file:
        sample = "".join(file.readline(_SAMPLE_LINE_CHARS) for _ in range(_SAMPLE_LINES))
    return PromptWriter(
        competition=competition,
        sample=sample,
        sample_path=f"./input/{path.relative_to(competition.public_dir)}",
        limits=config.sandbox,
        config=config.prompt,
        short=config.short_prompts,
        count_tokens=count,
        preview=lambda max_tokens: data_preview(competition.public_dir, max_tokens, count),
        packages=packages,
    )


def open_agent(
    config: RunConfig,
    run: RunDirectory,
    competitions: Sequence[Competition],
    backbone: Path,
    generator: Generator,
    packages: Mapping[str, str],
) -> PolicyAgent:
    """The agent of a run, with prompts in the backbone's own tokens. ``packages``: what the sandbox's programs can
    import."""
    tokenizer = load_tokenizer(backbone)
    writers = {each.id: prompt_writer(config, each, tokenizer, packages) for each in competitions}
    prompts = WavePrompts(config, run, writers, lambda text: chat_prompt_ids(tokenizer, text))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True))

    return PolicyAgent(config, generator, prompts, decode)
