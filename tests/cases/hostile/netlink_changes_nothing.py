# expect: status=ok; result=blocked; netlink can be opened, but links and routes can't be made
import os, socket, struct, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
def ask(kind, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(2)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    return struct.unpack_from("i", s.recv(4096), 16)[0]
for name, kind, body in (("new link", 16, struct.pack("BxHiII", 0, 0, 0, 0, 0)), ("new route", 24, struct.pack("8BI", 2, 0, 0, 0, 254, 3, 253, 1, 0))):
    try:
        if ask(kind, body) == 0: bad.append(name)
    except OSError: pass
print("RESULT:", "leaked %s" % bad if bad else "blocked")
