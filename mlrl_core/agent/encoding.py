"""From prompt text to the ids that the policy reads, through the model's own chat template."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(backbone_dir: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in the backbone's folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(backbone_dir)


def count_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Length of ``text`` as ``chat_prompt_ids`` encodes it, the chat template not counted."""
    return len(tokenizer(neutralised(tokenizer, text), add_special_tokens=False)["input_ids"])


def chat_prompt_ids(tokenizer: PreTrainedTokenizerBase, user_turn: str) -> tuple[int, ...]:
    """Ids of a prompt with one user turn, up to where the assistant begins; for a model without a chat template the
    text and a line end. Special tokens within the turn are text: it quotes data and output that nobody vouches for.
    """
    text = neutralised(tokenizer, user_turn)
    if not tokenizer.chat_template:
        return tuple(tokenizer(f"{text.rstrip()}\n")["input_ids"])
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return tuple(ids)


def neutralised(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """``text`` with a space in everything that would become a special token: ``<|im_end|>`` is ``< |im_end|>``."""
    pattern = _special(tokenizer)
    while True:
        changed = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        if changed == text:
            return text
        text = changed


@lru_cache(maxsize=4)
def _special(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """What to take apart: the added tokens of this tokenizer, and whatever is written like one."""
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    special |= set(tokenizer.all_special_tokens)
    # Runs of blanks and plain words are added to some vocabularies for brevity, they end no turn.
    added = {text for token in tokenizer.added_tokens_decoder.values() if not (text := str(token)).isalnum()}
    marks = sorted((t for t in special | added if len(t) > 1 and not t.isspace()), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, marks), r"<\|[^\s|<>]{1,40}\|>"]))
