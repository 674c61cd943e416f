# expect: status=ok; result=blocked; nothing that was written can be executed as a file
import os, shutil, subprocess, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for folder in (".", "/tmp", "/dev/shm"):
    path = os.path.join(folder, "copy"); shutil.copy("/bin/true", path); os.chmod(path, 0o755)
    try:
        subprocess.run([path]); bad.append(folder)
    except PermissionError: pass
print("RESULT:", "leaked %s" % bad if bad else "blocked")
