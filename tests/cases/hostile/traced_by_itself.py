# expect: status=ok; result=blocked; nobody can be traced, not even with consent
import ctypes, os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
libc = ctypes.CDLL(None, use_errno=True); libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
bad = []
if libc.ptrace(0, 0, 0, 0) == 0: bad.append("traceme")
child = os.fork()
if child == 0:
    import time; time.sleep(2); os._exit(0)
if libc.ptrace(16, child, 0, 0) == 0: bad.append("attach")
os.kill(child, 9); os.waitpid(child, 0)
print("RESULT:", "leaked %s" % bad if bad else "blocked")
