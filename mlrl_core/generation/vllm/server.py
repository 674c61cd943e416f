"""One server as the generator uses it: started here or found at a URL, with the adapters that it should hold."""

from __future__ import annotations

import json
import math
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlrl_core.config import RunConfig
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm.client import BASE, RefusedError, ServerClient, UnknownModelError
from mlrl_core.generation.vllm.environment import VERSION
from mlrl_core.generation.vllm.process import ServerProcess, free_port, interpreter
from mlrl_core.learner.versions import CANARY_TEMPERATURE

RESTARTS = 3
RESTARTS_WITHIN_S = 3600.0
_PROBE_IDS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A policy version as servers know it. The name says which run and version, so it always means the same bytes.

    ``canary``: token ids and the learner's log-probabilities of all but the first, at ``CANARY_TEMPERATURE``; None
    where the folder has no manifest beside it, or one with those at another temperature.
    """

    version: int
    name: str
    folder: Path
    canary: tuple[tuple[int, ...], tuple[float, ...]] | None

    @classmethod
    def of(cls, run_key: str, version: int, folder: Path) -> Adapter:
        """The adapter in a published version's folder. Raises MlrlError when its manifest can't be read."""
        manifest = folder.parent / "manifest.json"
        canary = None
        if manifest.exists():
            try:
                raw = json.loads(manifest.read_text())
                if raw.get("canary_temperature") == CANARY_TEMPERATURE:
                    canary = (tuple(map(int, raw["canary_ids"])), tuple(map(float, raw["canary_log_probs"])))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise MlrlError(f"{manifest}: can't be read ({error}): restore the folder") from None
        return cls(version, f"{run_key}-v{version:06d}", folder.absolute(), canary)


class Server:
    """``process`` is None for a server that others start and end. The generator's lock guards ``in_flight`` and
    ``down``."""

    def __init__(self, url: str, process: ServerProcess | None, tolerance: float) -> None:
        self.process = process
        self.in_flight = 0
        self.starts = 1  # so that what failed before a restart does not call for another
        self.down = False  # being restarted, or lost
        self.lost: str | None = None  # why it will not come back
        self.rests_until = 0.0  # monotonic; one at a URL that failed is asked again only then
        self.max_context = 0  # tokens, once it is open
        self._tolerance = tolerance
        self._url = url
        self._client: ServerClient | None = None
        self._restarts: list[float] = []
        self._pushing = threading.Lock()
        self._ours: dict[str, bool] = {}  # adapters loaded from here: whether their canary was right

    def takes_requests(self, now: float) -> bool:
        """Whether it is up and does not rest, at the monotonic time ``now``."""
        return not self.down and self.rests_until <= now

    @property
    def client(self) -> ServerClient:
        """The connection to the server as it runs now."""
        if self._client is None:
            raise InfraError("the vLLM server is not open")
        return self._client

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.process.url if self.process is not None else self._url

    def open(self, deadline_s: float, needed_context: int, cancelled: threading.Event) -> None:
        """Connect, after starting the process where there is one, and check who answers.

        Raises MlrlError when a URL does not lead to a server that can serve this run, InfraError when a process does
        not start.
        """
        if self.process is not None:
            if self.process.pid is None:
                self.process.spawn()
            self._client = ServerClient(self.url)
            self.process.wait_ready(self.client, deadline_s, cancelled)
        else:
            try:
                self._client = ServerClient(self._url)
            except RefusedError as error:
                raise MlrlError(f"generation.servers: {self._url} is no URL of a server ({error})") from None
        self._check(needed_context)

    def push(self, adapter: Adapter) -> None:
        """Load an adapter and compare the canary; nothing to do for one that was pushed from here and is still there.

        Raises RefusedError where the server will not have it, InfraError where another try may help.
        """
        with self._pushing:
            folder = self.client.models()[1].get(adapter.name)
            if folder is not None and self._ours.get(adapter.name):
                return
            if folder is not None and folder != str(adapter.folder):
                raise RefusedError(f"{adapter.name} is there already, from {folder}: another run has the same name")
            if folder is not None:  # from an earlier process, when the folder may have held something else
                self.client.unload_adapter(adapter.name)
            self._ours[adapter.name] = False
            try:
                self.client.load_adapter(adapter.name, adapter.folder)
                self._compare(adapter)
            except Exception:
                self.drop(adapter)
                raise
            self._ours[adapter.name] = True

    def drop(self, adapter: Adapter) -> None:
        """Unload an adapter, if it was loaded from here and the server answers."""
        if self._ours.pop(adapter.name, None) is None:
            return
        try:
            self.client.unload_adapter(adapter.name)
        except (InfraError, UnknownModelError):
            return  # a server that died holds none

    def is_dead(self) -> bool:
        """Whether it takes no more requests."""
        return (self.process is not None and self.process.pid is None) or not self.client.is_healthy()

    def restart(self, adapters: Iterable[Adapter], deadline_s: float, cancelled: threading.Event) -> None:
        """End what is left of the process, start it again and load the adapters again.

        Raises MlrlError when it has died too often, InfraError when it does not come up.
        """
        assert self.process is not None
        now = time.monotonic()
        self._restarts = [t for t in self._restarts if now - t < RESTARTS_WITHIN_S]
        if len(self._restarts) >= RESTARTS:
            raise MlrlError(
                f"the vLLM server died {RESTARTS + 1} times within an hour; {self.process.last_words()}: free memory "
                "or lower generation.max_in_flight"
            )
        self._restarts.append(now)
        self.process.stop()
        self.client.close()
        self._ours.clear()
        self.starts += 1
        self.process.spawn()
        self._client = ServerClient(self.url)
        self.process.wait_ready(self.client, deadline_s, cancelled)
        for adapter in adapters:
            self.push(adapter)

    def close(self) -> None:
        """End the process where there is one; a server at a URL goes on."""
        if self.process is not None:
            self.process.stop()
        if self._client is not None:
            self._client.close()

    def _check(self, needed_context: int) -> None:
        where = "the vLLM server started here" if self.process is not None else f"generation.servers: {self.url}"
        try:
            version = self.client.version()
            model, _ = self.client.models()
        except RefusedError as error:
            raise MlrlError(f"{where} is no vLLM server ({error}): correct the URL, or what stands there") from None
        except InfraError as error:
            raise MlrlError(f"{where} does not answer ({error}): start it, or correct the URL") from None
        if version.split(".")[:2] != VERSION.split(".")[:2]:
            raise MlrlError(f"{where} runs vLLM {version}; mlrl is tested with {VERSION}: install that one")
        if model.name != BASE:
            raise MlrlError(f"{where} calls its model {model.name}: start it with --served-model-name {BASE}")
        self.max_context = model.max_context
        if model.max_context < needed_context:
            raise MlrlError(
                f"{where} has a context of {model.max_context} tokens, prompt.max_tokens + sampling.max_new_tokens are "
                f"{needed_context}: start it with a larger --max-model-len, or lower one of them"
            )

    def _compare(self, adapter: Adapter) -> None:
        ids, expected = adapter.canary or (_PROBE_IDS, ())
        found = self.client.canary(adapter.name, ids)
        if not all(map(math.isfinite, found)):
            raise RefusedError(f"{self.url}: {adapter.name} gives log-probabilities that are no numbers")
        if expected:
            gap = statistics.median(abs(a - b) for a, b in zip(found, expected, strict=True))
            if gap > self._tolerance:
                raise RefusedError(
                    f"{self.url}: {adapter.name} gives log-probabilities {gap:.2g} from the learner's (at most "
                    f"{self._tolerance:g}): another base model, or another dtype"
                )


def check_servers(config: RunConfig) -> None:
    """What can be known of a run's servers before anything is started. Raises MlrlError."""
    generation = config.generation
    if generation.backend != "vllm":
        return
    for number, place in enumerate(generation.servers or ("cpu",)):
        if place.startswith("http"):
            server = Server(place, None, 0.0)
            try:
                server.open(0, config.prompt.max_tokens + config.sampling.max_new_tokens, threading.Event())
            finally:
                server.close()
        else:
            interpreter(config, place)
            free_port(generation.port + number if generation.port else 0)
