"""Responses of SmolLM2-135M-Instruct to real solve prompts, before any training:
``python -m tests.benchmarks.sampled_responses [--contents full short] [--number N] [--seed S]``.

So many answer the full prompt of `diamonds`, so many the short one, through the chat template and at temperature 1
without top-k or top-p, as a run samples. Prints each behind ``=== name``: `tests/cases/responses/sampled.txt` holds
them with a person's marks around the program.
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoModelForCausalLM

from mlrl_core.agent.encoding import chat_prompt_ids, load_tokenizer
from mlrl_core.agent.policy import prepare_policy
from mlrl_core.competitions import open_competition
from mlrl_core.config import load_config
from mlrl_core.sandbox import open_sandbox
from tasks.agent import prompt_writer

_MAX_NEW_TOKENS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contents", nargs="*", default=["full", "short"])
    parser.add_argument("--number", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for contents in arguments.contents:
        # Without demonstrations the base is not warm-started; 2560 tokens is what a prompt has by default.
        config = load_config(
            "smollm2", ["warmstart.demonstrations=0", f"prompt.contents={contents}", "prompt.max_tokens=2560"]
        )
        competition = open_competition(config.competition)
        folder = prepare_policy(config, competition, lambda text: None)
        tokenizer = load_tokenizer(folder)
        sandbox = open_sandbox(config.sandbox, run_key="sampled")
        try:
            packages = sandbox.packages()
        finally:
            sandbox.close()
        prompt = chat_prompt_ids(tokenizer, prompt_writer(config, competition, tokenizer, packages).solve)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        torch.manual_seed(arguments.seed)
        answers = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=arguments.number,
            max_new_tokens=_MAX_NEW_TOKENS,
            pad_token_id=tokenizer.eos_token_id,
        )
        for number, answer in enumerate(answers):
            text = tokenizer.decode(answer[len(prompt) :], skip_special_tokens=True)
            print(f"=== sampled {contents} {arguments.seed}-{number}\n{text}", flush=True)


if __name__ == "__main__":
    main()
