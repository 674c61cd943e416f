"""The vLLM backend: a wave's requests in flight at once over all servers, results as they finish.

Invariants: a request runs on one version from its first to its last token and its answer says which; a version that has
requests in flight, or is the current one, stays loaded; a push that fails on any server leaves the version before it
current everywhere.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.protocol import Generated, GenerationRequest
from mlrl_core.generation.vllm.adapters import check_adapter, served_rank
from mlrl_core.generation.vllm.pool import ServerPool
from mlrl_core.generation.vllm.server import Adapter, Server

_log = logging.getLogger(__name__)

FAILED_PUSHES = 3  # versions in a row, then the run fails: it would train on ever older ones


class VllmGenerator:
    """A Generator over vLLM servers, ready to sample when it has been made. Callable from any thread."""

    def __init__(
        self, config: RunConfig, backbone_dir: Path, run_dir: Path, cancelled: threading.Event | None = None
    ) -> None:
        """Starts and checks the servers of ``config.generation``; their logs go to ``<run>/vllm``.

        Raises MlrlError for a mistake in the configuration, InfraError when a server does not start.
        """
        self._config = config
        self._generation = config.generation
        # Servers at URLs are shared: runs may have one name, and evaluations are folders called by their version.
        place = hashlib.sha256(str(run_dir.absolute()).encode()).hexdigest()[:6]
        self._run_key = f"{run_dir.name}-{place}"
        self._lock = threading.Lock()
        self._in_flight: Counter[Adapter] = Counter()
        self._current: Adapter | None = None
        self._unpushed: list[int] = []  # versions that failed since the last that did not
        self._stand_ins: dict[int, int] = {}  # by version that failed, the one that was sampled in its place
        self._push_failures = 0
        self._tok_s = 0.0
        self.pool = ServerPool(config, backbone_dir, run_dir, self._needed, cancelled)

    @property
    def servers(self) -> Sequence[Server]:
        """The servers, in the order of the configuration."""
        return self.pool.servers

    def load_version(self, version: int, adapter_dir: Path) -> None:
        """Push a published version to every server and sample from it from now on.

        When that fails, the version before it goes on serving, and the failure is logged and counted
        (``adapter/push_fail``). Raises MlrlError or InfraError when there is none before it, or when
        ``FAILED_PUSHES`` versions in a row have failed.
        """
        if self._current is not None and self._current.version == version:
            return
        try:
            adapter = Adapter.of(self._run_key, version, adapter_dir)
            own = all(server.process is not None for server in self.servers)
            check_adapter(adapter_dir, served_rank(self._config.policy.lora.r) if own else None)
            self.pool.push(adapter)
        except (MlrlError, InfraError) as error:
            self._push_failures += 1
            self._unpushed.append(version)
            if self._current is None or len(self._unpushed) >= FAILED_PUSHES:
                raise
            self._stand_ins[version] = self._current.version
            _log.warning("version %d was not pushed, version %d goes on: %s", version, self._current.version, error)
            return
        with self._lock:
            self._current = adapter
            self._unpushed = []
            self._in_flight.setdefault(adapter, 0)
        self._retire()

    def generate(self, requests: Sequence[GenerationRequest], policy_version: int) -> Iterator[Generated]:
        """See ``Generator.generate``. Answers come as they finish, in any order; what was to be sampled from a version
        that could not be pushed is sampled from the one before it, and says so.

        Raises MlrlError when a server refuses a request, InfraError when one failed on every try.
        """
        current = self._current
        if current is None or (policy_version != current.version and policy_version not in self._unpushed):
            loaded = None if current is None else current.version
            raise ValueError(f"version {policy_version} was asked for but version {loaded} is loaded")
        with self._lock:
            self._in_flight[current] += len(requests)
        return self._stream(requests, current)

    def serving(self, policy_version: int) -> int:
        """See ``Generator.serving``."""
        return self._stand_ins.get(policy_version, policy_version)

    def metrics(self) -> dict[str, float]:
        """``adapter/push_fail``: versions not pushed so far; ``generator/tok_s``: tokens/s of the last pass."""
        return {"adapter/push_fail": float(self._push_failures), "generator/tok_s": self._tok_s}

    def close(self) -> None:
        """End the servers that were started here, and every request; adapters leave the others. Safe to repeat."""
        self.pool.close()

    def _needed(self) -> list[Adapter]:
        """What servers have to hold."""
        with self._lock:
            return [each for each, count in self._in_flight.items() if count or each == self._current]

    def _retire(self) -> None:
        """Unload what is neither current nor in flight."""
        with self._lock:
            idle = [each for each, count in self._in_flight.items() if not count and each != self._current]
            for each in idle:
                del self._in_flight[each]
        for adapter in idle:
            self.pool.drop(adapter)

    def _stream(self, requests: Sequence[GenerationRequest], adapter: Adapter) -> Iterator[Generated]:
        began, tokens, left = time.monotonic(), 0, len(requests)
        width = max(1, min(len(requests), self._generation.max_in_flight * len(self.servers)))
        threads = ThreadPoolExecutor(width, thread_name_prefix="vllm-request")
        try:
            for done in as_completed([threads.submit(self._sample, request, adapter) for request in requests]):
                answer = done.result()
                tokens += len(answer.response_ids)
                left -= 1
                with self._lock:
                    self._in_flight[adapter] -= 1
                yield answer
            self._tok_s = tokens / max(time.monotonic() - began, 1e-9)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            with self._lock:
                self._in_flight[adapter] -= left
            if adapter != self._current and not self.pool.is_closed:
                self._retire()

    def _sample(self, request: GenerationRequest, adapter: Adapter) -> Generated:
        limit_s = self._generation.request_deadline_s
        began = time.monotonic()
        # A chat template may take what is left of the context beyond the prompt's own bound.
        room = self.pool.max_context - len(request.prompt_ids)
        if room < 1:
            raise MlrlError(
                f"a prompt fills the servers' context of {self.pool.max_context} tokens: lower prompt.max_tokens"
            )
        max_tokens = min(self._config.sampling.max_new_tokens, room)

        def ask(server: Server) -> Generated:
            nonlocal began
            began = time.monotonic()
            answer = server.client.complete(
                adapter.name,
                request.prompt_ids,
                max_tokens=max_tokens,
                temperature=self._config.sampling.temperature,
                seed=request.seed % 2**63,
                deadline_s=limit_s,
            )
            return Generated(
                request.solution_id,
                answer.ids,
                answer.log_probs,
                answer.finish_reason,
                time.monotonic() - began,
                adapter.version,
            )

        return self.pool.call(ask, self._generation.pass_deadline_s)
