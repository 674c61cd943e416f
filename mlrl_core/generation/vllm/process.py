"""The process of one vLLM server that is started here: how it is called, how it starts, and that it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mlrl_core.config import RunConfig
from mlrl_core.config.policy import cores_of
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm import keeper
from mlrl_core.generation.vllm.adapters import served_rank
from mlrl_core.generation.vllm.client import BASE, RefusedError, ServerClient
from mlrl_core.generation.vllm.environment import check_build, find_python, has_gpu
from mlrl_core.models.folder import context_of

HOST = "127.0.0.1"  # never a public address: the server loads any folder that it is told to
SLOTS = 3  # adapters: the current one, the one before with requests in flight, the next one
_END_S = keeper.TERM_S + 2 * keeper.KILL_S + 5.0
_POLL_S = 0.1
_TEMPLATE_TOKENS = 512  # what a chat template adds to a prompt, and more
_PORT_TRIES = 100
# A server takes its port seconds after it was found free; meanwhile another of this process could be given the same.
_given_ports: set[int] = set()
_port_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What one server is started with. ``device`` is ``cpu``, ``cpu:0-3`` (these cores) or ``cuda:1`` (the
    second of those that this process sees)."""

    device: str
    port: int  # 0 = any that is free
    model: Path
    dtype: str
    max_rank: int
    max_context: int
    kv_cache_gb: float
    gpu_memory_share: float
    python: Path
    command: tuple[str, ...]

    @classmethod
    def of(cls, config: RunConfig, device: str, port: int, model: Path) -> ServerSpec:
        """The server that a run's configuration asks for. Raises MlrlError where it can't be served."""
        generation = config.generation
        return cls(
            device=device,
            port=port,
            model=model.absolute(),
            dtype=generation.dtype or config.policy.dtype,
            max_rank=served_rank(config.policy.lora.r),
            max_context=needed_context(config, model),
            kv_cache_gb=generation.kv_cache_gb,
            gpu_memory_share=generation.gpu_memory_share,
            python=interpreter(config, device),
            command=generation.command,
        )

    def arguments(self, port: int) -> list[str]:
        """The whole command line. The module is called, not the console script: on CPU that one fails."""
        program = [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        return [
            *(self.command or program),
            *("--model", str(self.model), "--served-model-name", BASE, "--host", HOST, "--port", str(port)),
            *("--dtype", self.dtype, "--max-model-len", str(self.max_context)),
            *("--enable-lora", "--max-lora-rank", str(self.max_rank), "--max-loras", str(SLOTS)),
            *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
            *(
                ("--enforce-eager",)
                if self.device.startswith("cpu")
                else ("--gpu-memory-utilization", f"{self.gpu_memory_share:g}")
            ),
        ]

    def environment(self) -> dict[str, str]:
        """Variables of the server beside those of this process."""
        kind, _, part = self.device.partition(":")
        made = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        # What the caller's own path holds is for this interpreter, not for vLLM's.
        if kind == "cuda":
            return made | {"PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": visible_device(int(part))}
        made["CUDA_VISIBLE_DEVICES"] = ""
        made["PYTHONPATH"] = str(Path(__file__).parent / "plugin")  # see there
        made["VLLM_CPU_KVCACHE_SPACE"] = f"{max(1, round(self.kv_cache_gb))}"
        made["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"  # it would leave a core idle: on two cores a third of the speed
        return made | ({"VLLM_CPU_OMP_THREADS_BIND": part} if part else {})


class ServerProcess:
    """One server, started and ended here. It also ends when this process dies in any way (``keeper``)."""

    def __init__(self, spec: ServerSpec, log: Path) -> None:
        self.spec, self.log = spec, log
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.url = ""

    @property
    def pid(self) -> int | None:
        """Process id of the keeper, while the server lives."""
        return self._keeper.pid if self._keeper is not None and self._keeper.poll() is None else None

    def spawn(self) -> None:
        """Start the process; ``wait_ready`` says when it serves. Raises MlrlError when the port is taken."""
        port = free_port(self.spec.port)
        self.url = f"http://{HOST}:{port}"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log, self._lock:
            self._keeper = self._start(port, log)

    def wait_ready(self, client: ServerClient, deadline_s: float, cancelled: threading.Event | None = None) -> None:
        """Wait until the server answers, then let it sample once, which it is slow at. Ends it where that fails.

        Raises InfraError when it dies, or takes longer than ``deadline_s`` seconds.
        """
        end = time.monotonic() + deadline_s
        given_up = cancelled if cancelled is not None else threading.Event()
        try:
            while not client.is_healthy():
                if self.pid is None:
                    raise InfraError(f"the vLLM server at {self.url} ended while starting; {self.last_words()}")
                if time.monotonic() > end:
                    raise InfraError(
                        f"the vLLM server at {self.url} was not ready within {deadline_s:g} s; {self.last_words()}"
                    )
                if given_up.wait(_POLL_S):
                    raise InfraError("the start of the vLLM server was given up")
            left = max(end - time.monotonic(), 1.0)
            try:
                client.complete(BASE, (1, 2), max_tokens=2, temperature=1.0, seed=0, deadline_s=left)
            except (InfraError, RefusedError) as error:
                raise InfraError(f"the vLLM server at {self.url} can't sample: {error}; {self.last_words()}") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and all its processes, from any thread; safe to repeat."""
        with self._lock:
            process = self._keeper
            if process is None or process.poll() is not None:
                return
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()  # the server has its death signal from it
                process.wait(_END_S)

    def last_words(self, lines: int = 3) -> str:
        """The last errors in the log, or its last lines, in one line."""
        try:
            text = self.log.read_text(errors="replace").splitlines()[-400:]
        except OSError:
            return "it left no log"
        telling = [line for line in text if "rror:" in line and "WARNING" not in line] or text
        return f"log {self.log}: " + " | ".join(line.strip()[-200:] for line in telling[-lines:])

    def _start(self, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(keeper.__file__)), *self.spec.arguments(port)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.spec.environment()},
            start_new_session=True,
        )


def interpreter(config: RunConfig, device: str) -> Path:
    """What a server on that device is started with. Raises MlrlError where it can't be."""
    kind, _, part = device.partition(":")
    if kind == "cpu" and part and (missing := set(cores_of(part)) - os.sched_getaffinity(0)):
        raise MlrlError(
            f"generation.servers: {device}, but this process may not run on core {min(missing)}: it has "
            f"{','.join(map(str, sorted(os.sched_getaffinity(0))))}"
        )
    if kind == "cuda":
        visible_device(int(part))
    if config.generation.command:
        return Path(sys.executable)
    if kind == "cuda" and not has_gpu():
        raise MlrlError(f"generation.servers: {device}, but this machine has no NVIDIA GPU: write cpu")
    python = find_python(config.generation.python)
    check_build(python, kind == "cuda")
    return python


def visible_device(number: int) -> str:
    """What CUDA calls the device ``number`` of those that this process sees, as PyTorch counts them.

    Raises MlrlError where ``CUDA_VISIBLE_DEVICES`` shows fewer.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number)
    devices = [each.strip() for each in visible.split(",") if each.strip()]
    if number >= len(devices):
        raise MlrlError(
            f"generation.servers: cuda:{number}, but CUDA_VISIBLE_DEVICES = {visible} shows {len(devices)} devices, "
            "counted from 0: show more, or name another"
        )
    return devices[number]


def free_port(wanted: int) -> int:
    """``wanted``, or for 0 any that is free and was not given before. Raises MlrlError when it can't be had."""
    with _port_lock:
        for _ in range(_PORT_TRIES):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, wanted))
                except OSError as error:
                    taken = error.errno == errno.EADDRINUSE
                    reason = "is taken by another program" if taken else f"can't be had ({error.strerror})"
                    raise MlrlError(f"generation.port: port {wanted} {reason}: set another, or 0 for any") from None
                port = int(probe.getsockname()[1])
            if wanted or port not in _given_ports:
                _given_ports.add(port)
                return port
    raise InfraError("no port is free for a vLLM server")


def needed_context(config: RunConfig, model: Path) -> int:
    """Tokens of prompt and response that a server has room for. Raises MlrlError where the model has less."""
    response = config.sampling.max_new_tokens
    needed = config.prompt.max_tokens + _TEMPLATE_TOKENS + response
    if config.instrument.asks_model and not config.instrument.model:
        needed += 2 * response  # the program, and the program again with its milestones
    limit = context_of(config, model)
    return min(needed, limit) if limit else needed
