# expect: status=ok; result=blocked; no real-time scheduling, no CPUs beyond the slot's, no raised limits
import os, resource, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    try:
        os.sched_setscheduler(0, policy, os.sched_param(1)); bad.append("policy %d" % policy)
    except OSError: pass
before = os.sched_getaffinity(0)
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError: pass
if os.environ["MLRL_SANDBOX"] == "docker" and os.sched_getaffinity(0) != before: bad.append("CPUs")
for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
    soft, hard = resource.getrlimit(limit)
    try:
        resource.setrlimit(limit, (hard + 1, hard + 1)); bad.append("limit %d" % limit)
    except (OSError, ValueError): pass
print("RESULT:", "leaked %s" % bad if bad else "blocked")
