# expect: status=ok; result=blocked; no link below /proc leads to another root, folder or open file of the host
import os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("root", "cwd"):
        try:
            names = set(os.listdir("/proc/%s/%s" % (pid, name)))
        except OSError: continue
        if name == "root" and names != set(os.listdir("/")): bad.append((pid, name, sorted(names)))
    try:
        links = [os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)]
    except OSError: continue
    bad += [(pid, link) for link in links if link.startswith("/") and not link.startswith(("/dev/", "/proc", "/out", "/job", "/usr", "/lib", "/tmp"))]
print("RESULT:", "leaked %s" % bad if bad else "blocked")
