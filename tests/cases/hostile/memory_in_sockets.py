# expect: status=ok|oom; wall=0..6; buffers of sockets and pipes are bounded
import os, socket, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
held = []
try:
    for _ in range(120):
        a, b = socket.socketpair(); a.setblocking(False); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24); held += [a, b]
        try:
            while True: a.send(b"x" * 65536)
        except BlockingIOError: pass
except OSError as error: print(error)
print("RESULT: bounded")
