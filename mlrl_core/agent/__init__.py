"""What the policy reads and says, and what it earns."""

from mlrl_core.agent.parsing import ParsedResponse, parse_response
from mlrl_core.agent.policy import prepare_policy
from mlrl_core.agent.prompts import PromptWriter, solve_prompt
from mlrl_core.agent.reward import outcome_of, reward_of

__all__ = [
    "ParsedResponse",
    "PromptWriter",
    "outcome_of",
    "parse_response",
    "prepare_policy",
    "reward_of",
    "solve_prompt",
]
