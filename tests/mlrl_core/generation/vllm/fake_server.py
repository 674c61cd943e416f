"""The few endpoints of vLLM that are used, on a thread, with the faults that a test wants."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OVERFLOW = "Out of range float values are not JSON compliant"


class FakeServer:
    """``fault`` is ``ok``, ``error`` (500), ``poisoned``, ``garbage``, ``slow`` or ``refuse``, for completions."""

    def __init__(self, name: str = "base", version: str = "0.32.0", context: int = 1024, port: int = 0) -> None:
        self.name, self.version, self.context = name, version, context
        self.fault, self.delay_s = "ok", 0.0
        self.adapters: dict[str, str] = {}
        self.canary = -1.0  # every log-probability that it gives
        self.served: list[dict[str, Any]] = []
        self.active = self.most_active = 0
        self.healthy = True
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(*fake.get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*fake.post(self.path, body))

            def _answer(self, status: int, body: Any) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that did not wait
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """End it; what is asked afterwards is refused a connection."""
        self._http.shutdown()
        self._http.server_close()

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        if path == "/health":
            return (200 if self.healthy else 503), {}
        if path == "/version":
            return 200, {"version": self.version}
        base = {"id": self.name, "root": "/model", "parent": None, "max_model_len": self.context}
        adapters = [{"id": name, "root": root, "parent": "base"} for name, root in self.adapters.items()]
        return 200, {"data": [base, *adapters]}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and body."""
        if path.endswith("/load_lora_adapter"):
            if body["lora_name"] in self.adapters:
                return 400, _error("it has already been loaded")
            self.adapters[body["lora_name"]] = body["lora_path"]
            return 200, {}
        if path.endswith("/unload_lora_adapter"):
            return (200, {}) if self.adapters.pop(body["lora_name"], None) else (404, _error("not found"))
        with self._lock:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            self.served.append(body)
        try:
            time.sleep(self.delay_s)
            return self._complete(body)
        finally:
            with self._lock:
                self.active -= 1

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["model"] != "base" and body["model"] not in self.adapters:
            return 404, _error("no such model")
        faults = {"error": (500, _error("broken")), "poisoned": (400, _error(OVERFLOW)), "garbage": (200, {"a": 1})}
        if self.fault in faults:
            return faults[self.fault]
        if self.fault == "refuse":
            return 400, _error("maximum context length")
        prompt, count = body["prompt"], body["max_tokens"]
        choice: dict[str, Any] = {
            "token_ids": [7] * count,
            "prompt_token_ids": prompt,
            "logprobs": {"token_logprobs": [self.canary] * count},
            "finish_reason": "length",
        }
        if "logprob_token_ids" in body:
            table = {f"token_id:{each}": self.canary for each in body["logprob_token_ids"]}
            return 200, {"choices": [{"index": i, "logprobs": {"top_logprobs": [table]}} for i in range(len(prompt))]}
        return 200, {"choices": [choice]}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}
