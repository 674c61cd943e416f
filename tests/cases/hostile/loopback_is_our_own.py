# expect: status=ok; result=blocked; a server of the program's own works, no other port of the loopback answers
import os, socket, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]; client = socket.create_connection(("127.0.0.1", port), 2); client.close()
probe = int(os.environ.get("MLRL_PROBE_PORT", "9"))
for candidate in (probe, 22, 2375, 2376, 4200, 5000, 8080):
    try:
        socket.create_connection(("127.0.0.1", candidate), 0.3).close(); bad.append(candidate)
    except OSError: pass
print("RESULT:", "leaked %s" % bad if bad else "blocked")
