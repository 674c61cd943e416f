# expect: status=ok; result=blocked; a thread can't take off the filter or get privileges back
import ctypes, os, sys, threading
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
libc = ctypes.CDLL(None, use_errno=True); bad = []
def attempt():
    if libc.prctl(38, 0, 0, 0, 0) == 0: bad.append("no_new_privs taken back")
    if libc.prctl(22, 0, 0, 0, 0) == 0: bad.append("seccomp taken off")
    if libc.prctl(47, 2, 0, 0, 0) == 0: bad.append("ambient capability")
thread = threading.Thread(target=attempt); thread.start(); thread.join()
print("RESULT:", "leaked %s" % bad if bad else "blocked")
