"""From prompt text to the ids that the policy reads, through the model's own chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(backbone_dir: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in the backbone's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(backbone_dir)


def count_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Length of ``text`` alone, no special tokens added."""
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def chat_prompt_ids(tokenizer: PreTrainedTokenizerBase, user_turn: str) -> tuple[int, ...]:
    """Ids of a prompt with one user turn, up to where the assistant begins."""
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": user_turn}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return tuple(ids)
