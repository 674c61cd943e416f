# expect: status=ok; result=blocked; the program starts with its three streams and nothing else
import fcntl, os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for fd in range(3, 4096):
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError: continue
    target = os.readlink("/proc/self/fd/%d" % fd)
    if target != "/job/solution.py": bad.append((fd, target))
print("RESULT:", "leaked %s" % bad if bad else "blocked")
