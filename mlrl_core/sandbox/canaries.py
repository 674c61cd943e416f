"""Small attacks that the preflight runs in the real backend. Each prints ``held`` or ``through <what>``, is bounded,
and harmless where it succeeds: it changes nothing, sends nothing and ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from mlrl_core.records import Execution


@dataclass(frozen=True, slots=True)
class Canary:
    """``expected``: the status that shows that the defence works; with ``ok`` the last line must be ``held``."""

    name: str
    source: str
    expected: str = "ok"
    limit_s: float = 30.0  # generous: a busy machine is no unsafe one

    def verdict(self, execution: Execution) -> str:
        """Empty when the defence held, else what happened."""
        if execution.status != self.expected:
            words = execution.stderr.tail.strip().splitlines()[-1:]
            return f"ended as {execution.status} instead of {self.expected}" + (f" ({words[0][:200]})" if words else "")
        if self.expected == "timeout" and execution.duration_s != self.limit_s:
            return f"timeout after {execution.duration_s:g} s"
        if self.expected == "ok":
            words = execution.stdout.tail.strip().splitlines()[-1:]
            return "" if words == ["held"] else f"got through: {words[0][:200] if words else 'no answer'}"
        return ""


_MEMORY = """
blocks = []
for _ in range(256):
    blocks.append(b"x" * (8 << 20))
print("through 2 GiB")
"""

_FORKS = """
import os, time
children = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        children += 1
    print("through", children)
except OSError:
    print("held")
"""

_DISK = """
wrote = 0
try:
    with open("big", "wb") as file:
        for _ in range(256):
            file.write(b"x" * (1 << 20)); file.flush(); wrote += 1
    print("through", wrote, "MiB")
except OSError:
    print("held")
"""

_CALLS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
through = []
if libc.ptrace(0x4206, 1, 0, 0) == 0: through.append("ptrace")
if libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0: through.append("io_uring")
if libc.unshare(0x10000000) == 0: through.append("unshare")
if libc.syscall(250, 0, -3, 0) >= 0: through.append("keyctl")
for name, family in (("vsock", 40), ("packet", 17), ("alg", 38)):
    try:
        socket.socket(family, 1 if family == 40 else 3).close(); through.append(name)
    except OSError:
        pass
status = open("/proc/self/status").read()
if "NoNewPrivs:\\t1" not in status: through.append("new privileges")
if any(int(l.split()[1], 16) for l in status.splitlines() if l.startswith(("CapEff", "CapPrm"))): through.append("caps")
if os.getuid() == 0: through.append("root")
import threading
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
print("through %s" % through if through else "held")
"""

_NETWORK = """
import socket
through = [line.split()[0] for line in open("/proc/net/route").read().splitlines()[1:]]
through += [name for _, name in socket.if_nameindex() if name not in ("lo",) and
            open("/proc/net/dev").read().count(name + ":") and name not in ("tunl0", "sit0", "ip6tnl0", "gre0")]
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=1).close(); through.append("listener on the host")
except OSError:
    pass
print("through %s" % through if through else "held")
"""

_FILES = """
import os
through = []
for folder in ("/", "/etc", "/usr", "/in", "/job", "/dev", "/proc/sys/kernel", os.path.dirname(os.__file__)):
    try:
        open(folder.rstrip("/") + "/mlrl-probe", "x").close(); through.append(folder)
    except OSError:
        pass
if os.path.exists({secret!r}): through.append("a file of the host")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            if {token!r}.encode()[::-1] in open("/proc/%s/%s" % (pid, name), "rb").read(): through.append(name)
        except OSError:
            pass
unknown = set(os.environ) - set(KNOWN_NAMES)
if unknown: through.append("variables %s" % sorted(unknown))
print("through %s" % through if through else "held")
"""


def canaries(*, port: int, secret: str, token: str) -> list[Canary]:
    """``port``: a listener of ours on loopback. ``secret``: a file of ours. ``token``: reversed, what a variable of
    ours holds. ``KNOWN_NAMES`` in a source stands for the list of variables that may be there."""
    return [
        Canary("memory bomb", _MEMORY, "oom"),
        Canary("fork bomb", _FORKS),
        Canary("full output folder", _DISK),
        Canary("refused system calls", _CALLS),
        Canary("network", _NETWORK.format(port=port)),
        Canary("files and environment", _FILES.format(secret=secret, token=token)),
        Canary("endless loop", "while True: pass", "timeout", limit_s=1.0),
        Canary("output flood", "for _ in range(16_384): print('x' * 4095)", "output_limit"),
    ]
