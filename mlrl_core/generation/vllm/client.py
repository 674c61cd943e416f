"""One vLLM server over HTTP. Every call has a deadline, and says by its error whether to repeat it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from mlrl_core.errors import InfraError
from mlrl_core.learner.versions import CANARY_TEMPERATURE
from mlrl_core.records import FinishReason

BASE = "base"  # what the model without an adapter is called on servers that are started here
# What would alter the distribution, switched off by value: a server fills what is left out from the model's own file.
_NEUTRAL = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_SHORT_S = 10.0  # for what a healthy server answers at once
_ADAPTER_S = 60.0
_MOST_BYTES = 64 << 20  # of an answer; thousands of tokens with their log-probabilities are less than one
_BUSY = (408, 425, 429)  # not now, maybe later: what a gateway before a server says
# httpx raises RuntimeError on a client that was closed, as that of a server being restarted is; ValueError (also as
# UnicodeError) and OverflowError come from looking up names and ports that are none.
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, RuntimeError, ValueError, OverflowError)
_NO_JSON = (ValueError, RecursionError)


class RefusedError(Exception):
    """The server is well and says no: the same request again gets the same answer."""


class PoisonedError(InfraError):
    """The server computes no numbers any more, and only a restart cures that."""


class UnknownModelError(RefusedError):
    """The server knows no adapter of that name: it has to be loaded (again)."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``root`` is the model's folder as the server sees it; ``max_context`` counts prompt and response tokens."""

    name: str
    root: str
    max_context: int


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled ids and, one for each, their log-probabilities at the sampling temperature."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason


class ServerClient:
    """Callable from any thread. Raises InfraError where another try, or another server, may help, RefusedError
    otherwise."""

    def __init__(self, url: str) -> None:
        """Raises RefusedError for a URL that no server can have."""
        self.url = url.rstrip("/")
        # Who calls bounds the requests in flight; a bound here would let the question for health wait behind them.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            # The environment's proxies are for the world outside; servers are near.
            self._http = httpx.Client(base_url=self.url, limits=limits, trust_env=False)
        except (httpx.InvalidURL, ValueError) as error:
            raise RefusedError(str(error)) from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_healthy(self) -> bool:
        """Whether the server takes requests now."""
        try:
            return self._ask("GET", "/health", None, _SHORT_S)[0] == 200
        except InfraError:
            return False

    def version(self) -> str:
        """The version of vLLM that serves. Raises RefusedError for no vLLM server."""
        try:
            return str(self._get("/version")["version"])
        except (KeyError, TypeError):
            raise RefusedError("no vLLM server answers there") from None

    def models(self) -> tuple[ServedModel, dict[str, str]]:
        """The base model, and of all adapters that were loaded the folder by the name.

        Raises RefusedError for no vLLM server.
        """
        try:
            entries = self._get("/v1/models")["data"]
            base = next(each for each in entries if each.get("parent") is None)
            adapters = {str(each["id"]): str(each["root"]) for each in entries if each is not base}
            return ServedModel(str(base["id"]), str(base["root"]), int(base["max_model_len"])), adapters
        except (AttributeError, KeyError, TypeError, ValueError, StopIteration):
            raise RefusedError("no vLLM server answers there") from None

    def load_adapter(self, name: str, folder: Path) -> None:
        """Load the adapter in ``folder`` (absolute, as the server sees it). Loading a name again changes nothing."""
        try:
            self._send("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, _ADAPTER_S)
        except InfraError as error:
            if self.is_healthy():  # a rank too high, DoRA and the like are answered by 500
                raise RefusedError(str(error)) from None
            raise
        except RefusedError as error:
            if "already been loaded" not in str(error):
                raise

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests that run with it end as they began. Raises UnknownModelError."""
        self._send("/v1/unload_lora_adapter", {"lora_name": name}, _SHORT_S)

    def complete(
        self,
        model: str,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | None = None,
        allowed: Sequence[int] | None = None,
        deadline_s: float,
    ) -> Completion:
        """Sample after ``prompt``. ``allowed``: the only ids that may be sampled, and the log-probabilities are then
        among them."""
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": temperature,
            **_NEUTRAL,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        if allowed is not None:
            body["allowed_token_ids"] = list(allowed)
        answer = self._send("/v1/completions", body, deadline_s)
        try:
            choice = answer["choices"][0]
            reason = choice["finish_reason"]
            ids = tuple(int(token) for token in choice["token_ids"])
            log_probs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
            if choice["prompt_token_ids"] != list(prompt):
                raise InfraError(f"{self.url}: the server has read another prompt than the one that was sent")
        except (KeyError, IndexError, TypeError, ValueError):
            raise InfraError(f"{self.url}: the answer to a completion is not as expected") from None
        if len(ids) != len(log_probs) or not ids:
            raise InfraError(f"{self.url}: {len(ids)} tokens with {len(log_probs)} log-probabilities")
        if not all(map(math.isfinite, log_probs)):
            raise PoisonedError(f"{self.url}: log-probabilities that are no numbers")
        if reason not in ("stop", "length"):
            raise InfraError(f"{self.url}: a completion ended by {reason}")
        return Completion(ids, log_probs, "stop" if reason == "stop" else "length")

    def canary(self, model: str, ids: Sequence[int], deadline_s: float = _ADAPTER_S) -> list[float]:
        """Log-probabilities of all ``ids`` but the first, each after those before it, at ``CANARY_TEMPERATURE``.

        Each is that of a sampled position: ``prompt_logprobs`` of an adapter kills the engine (0.32.0, CPU) when other
        requests are in flight.
        """
        body = {
            "model": model,
            "prompt": [list(ids[:end]) for end in range(1, len(ids))],
            "max_tokens": 1,
            **_NEUTRAL,
            "temperature": CANARY_TEMPERATURE,
            "seed": 0,
            "logprobs": 1,
            "logprob_token_ids": sorted(set(ids)),
            "return_tokens_as_token_ids": True,
        }
        answer = self._send("/v1/completions", body, deadline_s)
        try:
            choices = sorted(answer["choices"], key=lambda each: each["index"])
            tables = [each["logprobs"]["top_logprobs"][0] for each in choices]
            return [float(table[f"token_id:{token}"]) for table, token in zip(tables, ids[1:], strict=True)]
        except (KeyError, IndexError, TypeError, ValueError):
            raise InfraError(f"{self.url}: the answer to a canary is not as expected") from None

    def _get(self, path: str) -> Any:
        status, text = self._ask("GET", path, None, _SHORT_S)
        if status in (401, 403):
            raise RefusedError(f"{path} answers {status}: it wants a key, start it without --api-key")
        if status != 200:
            raise RefusedError(f"{path} answers {status}")
        try:
            return json.loads(text)
        except _NO_JSON:
            raise RefusedError(f"{path} answers no JSON") from None

    def _send(self, path: str, body: dict[str, Any], deadline_s: float) -> Any:
        status, text = self._ask("POST", path, body, deadline_s)
        if status == 200:
            if path != "/v1/completions":
                return None
            try:
                return json.loads(text)
            except _NO_JSON:
                raise InfraError(f"{self.url}: {path} answers no JSON") from None
        message = _message(text) or f"{path} answers {status}"
        if status == 404:
            raise UnknownModelError(message)
        if "Out of range float values" in message:
            raise PoisonedError(f"{self.url}: the server computes no numbers any more: {message}")
        if status < 500 and status not in _BUSY:
            raise RefusedError(message)
        raise InfraError(f"{self.url}: {path} answers {status}: {message}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, deadline_s: float) -> tuple[int, bytes]:
        """Status and text of the answer. The deadline is for all of it: a read's own limit begins anew with every byte.

        Raises InfraError when there is none in time.
        """
        end = time.monotonic() + deadline_s
        limit = httpx.Timeout(deadline_s, connect=min(deadline_s, _SHORT_S))
        text = bytearray()
        try:
            with self._http.stream(method, path, json=body, timeout=limit) as response:
                for part in response.iter_bytes():
                    text += part
                    if time.monotonic() > end:
                        raise InfraError(f"{self.url}: {path} was not answered within {deadline_s:g} s: timed out")
                    if len(text) > _MOST_BYTES:
                        raise InfraError(f"{self.url}: {path} answers more than {_MOST_BYTES >> 20} MiB")
                return response.status_code, bytes(text)
        except _FAILURES as error:
            raise InfraError(f"{self.url}: {_reason(error)} ({path})") from None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _message(text: bytes) -> str:
    """What the server says, in one line; a page of HTML says nothing."""
    said = text.decode(errors="replace")
    try:
        said = str(json.loads(said)["error"]["message"])
    except (*_NO_JSON, KeyError, TypeError):
        if said.lstrip().startswith("<"):
            return ""
    return " ".join(said.split())[:300]
