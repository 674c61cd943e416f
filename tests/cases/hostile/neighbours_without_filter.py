# expect: status=ok; result=blocked; every process that can be seen runs under at least as many filters as the program
import os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
def filters(pid):
    fields = dict(line.split(":", 1) for line in open("/proc/%s/status" % pid) if ":" in line)
    return int(fields["Seccomp"]), int(fields.get("Seccomp_filters", 0)), fields["NoNewPrivs"].strip()
own = filters("self"); bad = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    found = filters(pid)
    if found < own: bad.append((pid, open("/proc/%s/comm" % pid).read().strip(), found))
print("RESULT:", "leaked %s" % bad if bad else "blocked")
