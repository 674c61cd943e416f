"""The prompts of a wave: what each slot is asked for, in the policy's own tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlrl_core.agent import PromptWriter
from mlrl_core.agent.earlier import Earlier, earlier_of, longest_outcomes
from mlrl_core.agent.improving import CANDIDATE_COLUMNS, Candidate, candidates_of, choose_parent, draw_rng
from mlrl_core.config import RunConfig
from mlrl_core.errors import MlrlError
from mlrl_core.experience import ExperienceStore, RunDirectory, solution_id_of
from mlrl_core.experience.cuts import wave_ids
from mlrl_core.experience.episodes import previous_of
from mlrl_core.experience.plans import SlotPlan, read_plan, write_plan
from mlrl_core.records import PromptKind


@dataclass(frozen=True, slots=True)
class Prompt:
    """One slot's prompt as the generator takes it."""

    competition_id: str
    kind: PromptKind
    ids: tuple[int, ...]
    parent_id: str | None = None
    parent_reward: float | None = None


class WavePrompts:
    """Decides and writes the prompts of a wave. ``writers``: one per competition; ``encode``: text to prompt ids.

    Raises MlrlError at once where ``prompt.max_tokens`` is too small for what the configuration asks for.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        writers: Mapping[str, PromptWriter],
        encode: Callable[[str], tuple[int, ...]],
    ) -> None:
        self._config, self._run, self._writers, self._encode = config, run, writers, encode
        self._store = ExperienceStore(run)
        self._known: dict[int, list[Candidate]] = {}  # by compacted wave
        self._solve = {name: encode(writer.solve) for name, writer in writers.items()}
        if config.improve.improve_prob > 0:
            for writer in writers.values():
                try:
                    for longest in longest_outcomes(writer.competition.metric):
                        writer.improve(Earlier("pass", "", longest))
                except MlrlError as error:
                    both = "improve.episode to independent and " if config.improve.episode == "two_step" else ""
                    raise MlrlError(f"{error}; or set {both}improve.improve_prob to 0") from None

    def __call__(self, wave: int, slots: Sequence[int]) -> list[Prompt]:
        """The prompts of these slots of a wave: the same ones whenever and however often it is asked. What they improve
        must have its row."""
        plan = read_plan(self._run, wave)
        if plan is None:
            plan = self._decide(wave, len(wave_ids(self._run, self._config, wave)))
            write_plan(self._run, wave, plan)
        return [self._prompt(plan[slot]) for slot in slots]

    def _decide(self, wave: int, size: int) -> tuple[SlotPlan, ...]:
        actions = self._config.improve.actions
        if actions > 1:
            first = [previous_of(solution_id_of(wave, slot), actions) for slot in range(size)]
            return tuple(SlotPlan(self._config.competition_of_slot(slot), first[slot]) for slot in range(size))
        improving = self._config.improve.improve_prob > 0
        candidates = self._candidates(wave) if improving else []
        return tuple(self._decide_slot(wave, slot, candidates) for slot in range(size))

    def _decide_slot(self, wave: int, slot: int, candidates: list[Candidate]) -> SlotPlan:
        competition_id = self._config.competition_of_slot(slot)
        rng = draw_rng(self._config.seed, wave, slot, "improve")
        parent = choose_parent(candidates, competition_id, slot, self._config.improve, rng)
        if parent is None:
            return SlotPlan(competition_id)
        return SlotPlan(competition_id, parent.solution_id, parent.reward)

    def _candidates(self, wave: int) -> list[Candidate]:
        found: list[Candidate] = []
        for earlier in self._store.waves():
            if earlier >= wave:
                break
            if earlier not in self._known:
                rows = candidates_of(self._store.frame([earlier], CANDIDATE_COLUMNS), self._config.hacks)
                if not self._store.shard(earlier).exists():  # more rows may come
                    found += rows
                    continue
                self._known[earlier] = rows
            found += self._known[earlier]
        return found

    def _prompt(self, slot: SlotPlan) -> Prompt:
        if slot.parent_id is None:
            return Prompt(slot.competition_id, "solve", self._solve[slot.competition_id])
        writer = self._writers[slot.competition_id]
        row = self._store.get(slot.parent_id)
        reward = slot.parent_reward
        if reward is None and row.reward is not None:
            reward = row.reward.total
        limit_s, show = self._config.sandbox.time_limit_s, self._config.improve.show_milestones
        earlier = earlier_of(row, writer.competition.metric, limit_s, show)
        ids = self._encode(writer.improve(earlier))
        return Prompt(slot.competition_id, "improve", ids, slot.parent_id, reward)
