"""The vLLM backend: a wave's requests in flight at once over all servers, results as they finish.

Invariants: a request runs on one version from its first to its last token and its answer says which; a version that has
requests in flight, or is the current one, stays loaded; a push that fails on any server leaves the version before it
current everywhere.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.protocol import Generated, GenerationRequest
from mlrl_core.generation.vllm.adapters import check_adapter, served_rank
from mlrl_core.generation.vllm.client import PoisonedError, RefusedError, UnknownModelError
from mlrl_core.generation.vllm.process import ServerProcess, ServerSpec
from mlrl_core.generation.vllm.server import Adapter, Server

T = TypeVar("T")
_log = logging.getLogger(__name__)

PUSH_TRIES = 3
FAILED_PUSHES = 3  # versions in a row, then the run fails: it would train on ever older ones
_TRIES = 4  # of one request
_POLL_S = 0.1
# Mean distance of log-probabilities that the numerics of both sides explain (learner.md 4).
TOLERANCE = {True: 1e-3, False: 0.1}


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
        self._run_key = run_dir.name
        self._closed = threading.Event()
        self._cancelled = cancelled if cancelled is not None else self._closed
        self._changed = threading.Condition()
        self._in_flight: Counter[Adapter] = Counter()
        self._current: Adapter | None = None
        self._unpushed: list[int] = []  # versions that failed since the last that did not
        self._push_failures = 0
        self._tok_s = 0.0
        exact = config.policy.dtype == "float32" and self._generation.dtype in ("", "float32")
        self.backbone_dir = backbone_dir
        self._servers = [
            self._server(place, number, run_dir / "vllm", TOLERANCE[exact])
            for number, place in enumerate(self._generation.servers or ("cpu",))
        ]
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def servers(self) -> Sequence[Server]:
        """The servers, in the order of the configuration."""
        return self._servers

    @property
    def max_context(self) -> int:
        """Tokens of prompt and response that every server has room for."""
        return min(server.max_context for server in self._servers)

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
            own = all(server.process is not None for server in self._servers)
            check_adapter(adapter_dir, served_rank(self._config.policy.lora.r) if own else None)
            self._push(adapter)
        except (MlrlError, InfraError) as error:
            self._push_failures += 1
            self._unpushed.append(version)
            if self._current is None or len(self._unpushed) >= FAILED_PUSHES:
                raise
            _log.warning("version %d was not pushed, version %d goes on: %s", version, self._current.version, error)
            return
        with self._changed:
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
        with self._changed:
            self._in_flight[current] += len(requests)
        return self._stream(requests, current)

    def call(self, action: Callable[[Server], T], deadline_s: float) -> T:
        """Do something on a server that has room, and on another or a restarted one where the first fails.

        Raises MlrlError when a server refuses, InfraError when all tries fail.
        """
        end = time.monotonic() + deadline_s
        error: Exception = InfraError("no vLLM server")
        for number in range(_TRIES):
            server = self._take(end, error)
            try:
                return action(server)
            except UnknownModelError as unknown:
                error = unknown
                self._load_again(server)
            except RefusedError as refused:
                raise MlrlError(f"{server.url} refuses a request: {refused}") from None
            except InfraError as failed:
                error = failed
                if self._closed.is_set():
                    raise
                self._mend(server, isinstance(failed, PoisonedError), number)
            finally:
                with self._changed:
                    server.in_flight -= 1
                    self._changed.notify_all()
        raise InfraError(f"a request failed {_TRIES} times, at last: {error}")

    def metrics(self) -> dict[str, float]:
        """``adapter/push_fail``: versions not pushed so far; ``generator/tok_s``: tokens/s of the last pass."""
        return {"adapter/push_fail": float(self._push_failures), "generator/tok_s": self._tok_s}

    def close(self) -> None:
        """End the servers that were started here, and every request; adapters leave the others. Safe to repeat."""
        again = self._closed.is_set()
        self._closed.set()
        for server in self._servers:
            if server.process is None and not again and server.lost is None:
                self._forget(server)
            server.close()

    def _server(self, place: str, number: int, logs: Path, tolerance: float) -> Server:
        if place.startswith("http"):
            return Server(place, None, tolerance)
        port = self._generation.port + number if self._generation.port else 0
        spec = ServerSpec.of(self._config, place, port, self.backbone_dir)
        return Server("", ServerProcess(spec, logs / f"server-{number}.log"), tolerance)

    def _open(self) -> None:
        needed = self._config.prompt.max_tokens + self._config.sampling.max_new_tokens
        limit_s = self._generation.start_deadline_s
        with ThreadPoolExecutor(len(self._servers), thread_name_prefix="vllm-start") as pool:
            opened = [pool.submit(server.open, limit_s, needed, self._cancelled) for server in self._servers]
        for each in opened:
            each.result()

    def _push(self, adapter: Adapter) -> None:
        for number in range(PUSH_TRIES):
            failed: Server | None = None
            try:
                for server in self._servers:
                    failed = server
                    server.push(adapter)
                return
            except RefusedError as error:
                self._withdraw(adapter)
                raise MlrlError(_refusal(error, failed)) from None
            except InfraError as error:
                if number == PUSH_TRIES - 1:
                    self._withdraw(adapter)
                    raise
                if failed is not None:
                    self._mend(failed, isinstance(error, PoisonedError), number)

    def _withdraw(self, adapter: Adapter) -> None:
        for server in self._servers:
            server.drop(adapter)

    def _retire(self) -> None:
        """Unload what is neither current nor in flight."""
        with self._changed:
            idle = [each for each, count in self._in_flight.items() if not count and each != self._current]
            for each in idle:
                del self._in_flight[each]
        for adapter in idle:
            self._withdraw(adapter)

    def _stream(self, requests: Sequence[GenerationRequest], adapter: Adapter) -> Iterator[Generated]:
        began, tokens, left = time.monotonic(), 0, len(requests)
        width = max(1, min(len(requests), self._generation.max_in_flight * len(self._servers)))
        pool = ThreadPoolExecutor(width, thread_name_prefix="vllm-request")
        try:
            for done in as_completed([pool.submit(self._sample, request, adapter) for request in requests]):
                answer = done.result()
                tokens += len(answer.response_ids)
                left -= 1
                with self._changed:
                    self._in_flight[adapter] -= 1
                yield answer
            self._tok_s = tokens / max(time.monotonic() - began, 1e-9)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            with self._changed:
                self._in_flight[adapter] -= left
            if adapter != self._current and not self._closed.is_set():
                self._retire()

    def _sample(self, request: GenerationRequest, adapter: Adapter) -> Generated:
        limit_s = self._generation.request_deadline_s
        began = time.monotonic()

        def ask(server: Server) -> Generated:
            nonlocal began
            began = time.monotonic()
            answer = server.client.complete(
                adapter.name,
                request.prompt_ids,
                max_tokens=self._config.sampling.max_new_tokens,
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

        return self.call(ask, self._generation.pass_deadline_s)

    def _take(self, end: float, error: Exception) -> Server:
        """A server with room for one more request."""
        with self._changed:
            while True:
                if self._closed.is_set() or self._cancelled.is_set():
                    raise InfraError("generation was stopped")
                if all(server.lost for server in self._servers):
                    raise InfraError(f"no vLLM server is left: {self._servers[0].lost}")
                bound = self._generation.max_in_flight
                free = [each for each in self._servers if not each.down and each.in_flight < bound]
                if free:
                    server = min(free, key=lambda each: each.in_flight)
                    server.in_flight += 1
                    return server
                if time.monotonic() > end:
                    raise InfraError(f"no vLLM server had room in time; the last error: {error}")
                self._changed.wait(_POLL_S)

    def _mend(self, server: Server, poisoned: bool, number: int) -> None:
        """After a failure: restart a server of ours that is dead; give one at a URL a moment."""
        if server.process is None or not (poisoned or server.is_dead()):
            self._closed.wait(min(2.0**number, 10.0))
            return
        with self._changed:
            if server.down:  # somebody is at it: whoever waits for room waits for that
                return
            server.down = True
            needed = [each for each, count in self._in_flight.items() if count or each == self._current]
        _log.warning("the vLLM server at %s died; it is started again: %s", server.url, server.process.last_words())
        try:
            server.restart(needed, self._generation.start_deadline_s, self._closed)
        except (MlrlError, InfraError, RefusedError) as error:
            server.lost = str(error)
            _log.error("the vLLM server could not be started again: %s", error)
        with self._changed:
            server.down = server.lost is not None
            self._changed.notify_all()

    def _load_again(self, server: Server) -> None:
        """Adapters that a server at a URL has lost by a restart."""
        with self._changed:
            needed = [each for each, count in self._in_flight.items() if count or each == self._current]
        for adapter in needed:
            try:
                server.push(adapter)
            except (RefusedError, InfraError) as error:
                raise InfraError(f"{server.url}: {adapter.name} can't be loaded again: {error}") from None

    def _forget(self, server: Server) -> None:
        for adapter in self._in_flight:
            try:
                server.drop(adapter)
            except (RefusedError, InfraError):
                return


def _refusal(error: RefusedError, server: Server | None) -> str:
    where = server.url if server is not None else "the server"
    if isinstance(error, UnknownModelError) and "No adapter found" not in str(error):
        return (
            f"{where} loads no adapters: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ({error})"
        )
    return f"{where} does not take the adapter: {error}"
