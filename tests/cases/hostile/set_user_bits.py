# expect: status=ok; result=blocked; no file with set-user or set-group bits gives anybody's rights
import os, subprocess, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for top in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib", "/opt"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError: continue
            if mode & 0o6000 and os.path.isfile(path) and name in ("su", "mount", "passwd", "newgrp", "chsh"):
                status = subprocess.run([sys.executable, "-c", "import os; os.execv(%r, [%r, '--version'])" % (path, path)], capture_output=True)
                print(path, status.returncode)
if os.geteuid() == 0 or os.getuid() == 0: bad.append("root")
if "NoNewPrivs:\t1" not in open("/proc/self/status").read(): bad.append("new privileges")
print("RESULT:", "leaked %s" % bad if bad else "blocked")
