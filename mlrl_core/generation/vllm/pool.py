"""The servers of a run. A call goes to the one with the least to do; one of ours that dies is started again, one at a
URL that fails rests a moment, and the call is repeated where it may help."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm.client import PoisonedError, RefusedError, UnknownModelError
from mlrl_core.generation.vllm.process import ServerProcess, ServerSpec
from mlrl_core.generation.vllm.server import Adapter, Server

T = TypeVar("T")
_log = logging.getLogger(__name__)

_TRIES = 4  # of one call, on servers that are alive
_PUSH_TRIES = 3
_REST_S = 5.0  # of a server at a URL that failed
_POLL_S = 0.1
# Distance of log-probabilities that the numerics of both sides explain. In bfloat16 SmolLM2's fixed tokens lie 0.24
# apart in the mean, by one rare token, and 0.035 in the median.
TOLERANCE = {True: 1e-3, False: 0.1}


class ServerPool:
    """Callable from any thread. ``needed`` says which adapters a restarted server has to hold."""

    def __init__(
        self,
        config: RunConfig,
        backbone_dir: Path,
        run_dir: Path,
        needed: Callable[[], Sequence[Adapter]],
        cancelled: threading.Event | None = None,
    ) -> None:
        """Starts and checks the servers of ``config.generation``; their logs go to ``<run>/vllm``.

        Raises MlrlError for a mistake in the configuration, InfraError when a server does not start.
        """
        self._config = config
        self._generation = config.generation
        self._needed = needed
        self._closed = threading.Event()
        self._cancelled = cancelled if cancelled is not None else self._closed
        self._changed = threading.Condition()
        tolerance = TOLERANCE[not config.is_rounded]

        def server(place: str, number: int) -> Server:
            if place.startswith("http"):
                return Server(place, None, tolerance)
            port = self._generation.port + number if self._generation.port else 0
            spec = ServerSpec.of(config, place, port, backbone_dir)
            return Server("", ServerProcess(spec, run_dir / "vllm" / f"server-{number}.log"), tolerance)

        places = self._generation.servers or ("cpu",)
        self.servers: Sequence[Server] = [server(place, number) for number, place in enumerate(places)]
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def max_context(self) -> int:
        """Tokens of prompt and response that every server has room for."""
        return min(server.max_context for server in self.servers)

    @property
    def is_closed(self) -> bool:
        """Whether the servers were ended."""
        return self._closed.is_set()

    def call(self, action: Callable[[Server], T], deadline_s: float) -> T:
        """Do something on a server that has room, and on another or a restarted one where the first fails.

        Raises MlrlError when a server refuses, InfraError when all tries fail.
        """
        end = time.monotonic() + deadline_s
        error: Exception = InfraError("no vLLM server")
        tries = 0
        while tries < _TRIES:
            server = self._take(end, error)
            starts = server.starts
            try:
                return action(server)
            except UnknownModelError as unknown:
                error = self._load_again(server) or unknown
                tries += 1
            except RefusedError as refused:
                raise MlrlError(f"{server.url} refuses a request: {refused}") from None
            except InfraError as failed:
                error = failed
                if self._closed.is_set():
                    raise
                tries += self._mend(server, starts, isinstance(failed, PoisonedError))
            finally:
                with self._changed:
                    server.in_flight -= 1
                    self._changed.notify_all()
        raise InfraError(f"a request failed {_TRIES} times, at last: {error}")

    def push(self, adapter: Adapter) -> None:
        """Load an adapter on every server and compare its canary; on none where one fails.

        Raises MlrlError when a server refuses it, InfraError when all tries fail.
        """
        for number in range(_PUSH_TRIES):
            server: Server | None = None
            starts = 0
            try:
                for each in self.servers:
                    if self._wait_while_down(each):
                        server, starts = each, each.starts
                        server.push(adapter)
                if server is None:
                    raise InfraError(f"no vLLM server is left: {self.servers[0].lost}")
                return
            except RefusedError as error:
                self.drop(adapter)
                raise MlrlError(_refusal(error, server)) from None
            except InfraError as error:
                if number == _PUSH_TRIES - 1 or server is None or self._closed.is_set():
                    self.drop(adapter)
                    raise
                self._mend(server, starts, isinstance(error, PoisonedError))
                self._closed.wait(_REST_S if server.process is None else _POLL_S)

    def drop(self, adapter: Adapter) -> None:
        """Unload an adapter wherever it is."""
        for server in self.servers:
            if server.lost is None:
                server.drop(adapter)

    def close(self) -> None:
        """End the servers that were started here, and every request; adapters leave the others. Safe to repeat."""
        again = self._closed.is_set()
        self._closed.set()
        adapters = () if again else self._needed()
        for server in self.servers:
            if server.process is None:
                for adapter in adapters:
                    server.drop(adapter)
            server.close()

    def _open(self) -> None:
        needed = self._config.prompt.max_tokens + self._config.sampling.max_new_tokens
        limit_s = self._generation.start_deadline_s
        with ThreadPoolExecutor(len(self.servers), thread_name_prefix="vllm-start") as threads:
            opened = [threads.submit(server.open, limit_s, needed, self._cancelled) for server in self.servers]
            wait(opened, return_when=FIRST_EXCEPTION)
            failed = next((each for each in opened if each.done() and each.exception() is not None), None)
            if failed is not None:  # the others would take minutes to start for nothing
                for server in self.servers:
                    server.close()
        if failed is not None:
            failed.result()

    def _take(self, end: float, error: Exception) -> Server:
        """A server with room for one more request."""
        bound = self._generation.max_in_flight
        with self._changed:
            while True:
                if self._closed.is_set() or self._cancelled.is_set():
                    raise InfraError("generation was stopped")
                if all(server.lost for server in self.servers):
                    raise InfraError(f"no vLLM server is left: {self.servers[0].lost}")
                now = time.monotonic()
                free = [each for each in self.servers if each.takes_requests(now) and each.in_flight < bound]
                if free:
                    server = min(free, key=lambda each: each.in_flight)
                    server.in_flight += 1
                    return server
                if now > end:
                    raise InfraError(f"no vLLM server had room in time; the last error: {error}")
                self._changed.wait(_POLL_S)

    def _wait_while_down(self, server: Server) -> bool:
        """Whether a server is there, after its restart where one is under way."""
        end = time.monotonic() + self._generation.start_deadline_s
        with self._changed:
            while server.down and server.lost is None:
                if self._closed.is_set() or time.monotonic() > end:
                    raise InfraError(f"the vLLM server at {server.url} is not back")
                self._changed.wait(_POLL_S)
        return server.lost is None

    def _mend(self, server: Server, starts: int, poisoned: bool) -> bool:
        """After a failure on a server that had been started ``starts`` times: restart one of ours that is dead or
        poisoned, let one at a URL rest. Whether it was alive, so that the failure may be the request's own."""
        alive = not server.is_dead()
        with self._changed:
            if server.down or server.starts != starts:  # others are at it, or were: whoever wants room waits for that
                return False
            if server.process is None:
                server.rests_until = time.monotonic() + _REST_S
                return alive
            if alive and not poisoned:
                return True
            server.down = True
        _log.warning("the vLLM server at %s died; it is started again: %s", server.url, server.process.last_words())
        try:
            server.restart(self._needed(), self._generation.start_deadline_s, self._closed)
        except (MlrlError, InfraError, RefusedError, OSError) as error:
            server.lost = str(error)
            _log.error("the vLLM server could not be started again: %s", error)
        with self._changed:
            server.down = server.lost is not None
            self._changed.notify_all()
        return False

    def _load_again(self, server: Server) -> Exception | None:
        """Load what a server at a URL has lost by a restart. Where that fails the server rests, since another may do;
        returns why."""
        for adapter in self._needed():
            try:
                server.push(adapter)
            except (RefusedError, InfraError) as error:
                server.rests_until = time.monotonic() + _REST_S
                return InfraError(f"{server.url}: {adapter.name} can't be loaded again: {error}")
        return None


def _refusal(error: RefusedError, server: Server | None) -> str:
    where = server.url if server is not None else "the server"
    if isinstance(error, UnknownModelError) and "No adapter found" not in str(error):
        return (
            f"{where} loads no adapters: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ({error})"
        )
    return f"{where} does not take the adapter: {error}"
