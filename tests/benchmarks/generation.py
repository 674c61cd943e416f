"""Generation by a vLLM server: ``python -m tests.benchmarks.generation``.

Throughput through the run's own way (agent-side stream of ``VllmGenerator``) against the same requests sent straight to
the server, in turn, the median over ``--rounds`` pairs; and the time from the push of a version, with its canary, to
the first token sampled from it. The shapes of SmolLM2-135M with random weights unless ``--model`` names a folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlrl_core.generation import GenerationRequest
from mlrl_core.generation.vllm.client import ServerClient
from mlrl_core.generation.vllm.generator import VllmGenerator
from tests.integration.vllm_fakes import run_config, save_version
from tests.models import SMOLLM2, save_llama


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder of transformers")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--server", default="cpu", help="its place, as in generation.servers")
    parser.add_argument("--pushes", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = options.model or save_llama(folder / "model", SMOLLM2, dtype="bfloat16")
        adapters = [save_version(model, folder / f"{n:05d}", n, size=0.02) for n in range(options.pushes + 1)]
        config = run_config(
            model,
            f"generation.dtype={options.dtype}",
            f'generation.servers=["{options.server}"]',
            max_new_tokens=options.tokens,
        )
        generator = VllmGenerator(config, model, folder / "run")
        try:
            print(json.dumps(_measure(generator, adapters, options), indent=2))
        finally:
            generator.close()


def _measure(generator: VllmGenerator, adapters: list[Path], options: argparse.Namespace) -> dict[str, object]:
    generator.load_version(0, adapters[0])
    requests = [
        GenerationRequest(f"s{i}", tuple(2 + (7 * i + j) % 90 for j in range(64)), seed=i)
        for i in range(options.requests)
    ]
    list(generator.generate(requests[:4], 0))
    straight, through = [], []
    for number in range(options.rounds):
        ways = [(straight, _straight), (through, _through)]
        for speeds, way in ways if number % 2 else reversed(ways):
            speeds.append(way(generator, requests, options.tokens))
    pushes = []
    for version in range(1, options.pushes + 1):
        began = time.monotonic()
        generator.load_version(version, adapters[version])
        client = generator.servers[0].client
        client.complete(_name(client, version), (2, 3, 4), max_tokens=1, temperature=1.0, seed=0, deadline_s=60)
        pushes.append(time.monotonic() - began)
    return {
        "straight_tok_s": [round(each, 1) for each in straight],
        "through_tok_s": [round(each, 1) for each in through],
        "median_ratio": round(statistics.median(a / b for a, b in zip(through, straight, strict=True)), 3),
        "push_to_first_token_s": [round(each, 3) for each in pushes],
    }


def _name(client: ServerClient, version: int) -> str:
    """What the server calls a version; its run's own prefix is not known here."""
    return next(name for name in client.models()[1] if name.endswith(f"-v{version:06d}"))


def _through(generator: VllmGenerator, requests: list[GenerationRequest], _: int) -> float:
    """Tokens per second of the requests as a run makes them."""
    began = time.monotonic()
    tokens = sum(len(answer.response_ids) for answer in generator.generate(requests, 0))
    return tokens / (time.monotonic() - began)


def _straight(generator: VllmGenerator, requests: list[GenerationRequest], tokens: int) -> float:
    """Tokens per second of the same requests by a bare client with as many connections."""
    client = ServerClient(generator.servers[0].url)
    name = _name(client, 0)

    def one(request: GenerationRequest) -> int:
        answer = client.complete(
            name, request.prompt_ids, max_tokens=tokens, temperature=0.7, seed=request.seed, deadline_s=300
        )
        return len(answer.ids)

    with ThreadPoolExecutor(len(requests)) as pool:
        began = time.monotonic()
        total = sum(pool.map(one, requests))
        return total / (time.monotonic() - began)


if __name__ == "__main__":
    main()
