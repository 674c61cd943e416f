"""What stands at a URL may be anything: each kind is one line, in time, and never a traceback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mlrl_core.config import load_config
from mlrl_core.errors import InfraError, MlrlError
from mlrl_core.generation.vllm import client as clients
from mlrl_core.generation.vllm.client import RefusedError, ServerClient
from mlrl_core.generation.vllm.server import check_servers


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextmanager
def stranger(reply: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that does ``reply`` with every connection, once it has been asked something."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def one(connection: socket.socket) -> None:
            with connection:
                connection.settimeout(20)
                try:
                    connection.recv(65536)
                    reply(connection)
                except OSError:
                    pass  # whoever asked did not wait

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def says(status: str, body: bytes = b"", *headers: str) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(answer(status, body, *headers))


def drips(connection: socket.socket) -> None:
    """Bytes that come for ever, each of them in time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(400):
        connection.sendall(b" ")
        time.sleep(0.05)


def hangs(connection: socket.socket) -> None:
    connection.recv(1)  # until whoever asks gives up


STRANGERS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "html": (says("200 OK", b"<html>hello</html>"), "answers no JSON"),
    "list": (says("200 OK", b"[1, 2]"), "no vLLM server answers there"),
    "text": (says("200 OK", b'"x"'), "no vLLM server answers there"),
    "null": (says("200 OK", b"null"), "no vLLM server answers there"),
    "other": (says("200 OK", b'{"detail": "hello"}'), "no vLLM server answers there"),
    "deep": (says("200 OK", b"[" * 100_000), "answers no JSON"),
    "bytes": (says("200 OK", b"\xff\xfe\x00"), "answers no JSON"),
    "nothing": (says("200 OK"), "answers no JSON"),
    "key": (says("401 Unauthorized", b'{"error": "Unauthorized"}'), "it wants a key, start it without --api-key"),
    "forbidden": (says("403 Forbidden", b"<html></html>"), "it wants a key"),
    "elsewhere": (says("307 Temporary Redirect", b"", "Location: http://127.0.0.1:1/"), "answers 307"),
    "missing": (says("404 Not Found", b"<html></html>"), "answers 404"),
    "broken": (says("502 Bad Gateway", b"<html></html>"), "answers 502"),
    "closes": (lambda connection: None, "does not answer"),
    "no http": (lambda connection: connection.sendall(b"220 mail ready\r\n"), "does not answer"),
    "half": (
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        "does not answer",
    ),
    "packed": (says("200 OK", b"no gzip", "Content-Encoding: gzip"), "does not answer"),
    "hangs": (hangs, "does not answer"),
    "drips": (drips, "does not answer"),
}


def check(url: str) -> None:
    check_servers(load_config("nano", ["generation.backend=vllm", f'generation.servers=["{url}"]']))


@pytest.mark.parametrize("kind", STRANGERS)
def test_whatever_answers_there_is_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_SHORT_S", 0.5)
    reply, words = STRANGERS[kind]
    began = time.monotonic()
    with stranger(reply) as url, pytest.raises(MlrlError, match=words) as refused:
        check(url)
    assert str(refused.value).startswith(f"generation.servers: {url}")
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "entries",
    ['["x"]', '[{"id": "base"}]', "[]", "{}", "3", '[{"id": "base", "root": "/m", "max_model_len": null}]'],
)
def test_models_that_are_none(entries: str) -> None:
    def reply(connection: socket.socket) -> None:
        connection.sendall(answer("200 OK", f'{{"version": "0.32.0", "data": {entries}}}'.encode()))

    with stranger(reply) as url, pytest.raises(MlrlError, match="no vLLM server answers there"):
        check(url)


@pytest.mark.parametrize("url", ["http://1.2.3.999:80", "http://127.0.0.1:1"])
def test_an_address_that_nobody_has(url: str) -> None:
    with pytest.raises(MlrlError, match=r"generation\.servers: http.* (is no URL of a server|does not answer)"):
        check(url)


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_completion_is_refused_or_repeated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_SHORT_S", 0.5)
    with stranger(STRANGERS[kind][0]) as url:
        client = ServerClient(url)
        began = time.monotonic()
        with pytest.raises((InfraError, RefusedError)) as failed:
            client.complete("base", (1, 2), max_tokens=1, temperature=1.0, deadline_s=0.5)
        assert time.monotonic() - began < 3
        assert str(failed.value)
        assert "\n" not in str(failed.value)
        assert "<html>" not in str(failed.value)
        client.close()


@pytest.mark.parametrize("status", ["429 Too Many Requests", "408 Request Timeout", "503 Service Unavailable"])
def test_a_busy_gateway_is_asked_again(status: str) -> None:
    with stranger(says(status, b"later")) as url, pytest.raises(InfraError, match="later"):
        ServerClient(url).complete("base", (1, 2), max_tokens=1, temperature=1.0, deadline_s=5)
