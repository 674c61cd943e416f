# expect: status=ok; result=blocked; a neighbour whose memory can be opened for writing runs under the same filter, so that it can do no more
import os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
own = open("/proc/self/status").read().split("Seccomp_filters:")[1].split()[0]; bad = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    try:
        os.close(os.open("/proc/%s/mem" % pid, os.O_RDWR))
    except OSError:
        continue
    if open("/proc/%s/status" % pid).read().split("Seccomp_filters:")[1].split()[0] < own: bad.append(pid)
print("RESULT:", "leaked %s" % bad if bad else "blocked")
