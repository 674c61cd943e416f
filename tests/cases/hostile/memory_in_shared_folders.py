# expect: status=ok; result=blocked; the temporary folder and shared memory end at their caps
import errno, os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for folder in ("/tmp", "/dev/shm"):
    wrote = 0
    try:
        with open(folder + "/fill", "wb", 0) as file:
            for _ in range(40): file.write(b"x" * (1 << 20)); wrote += 1
        bad.append((folder, wrote))
    except OSError as error:
        if error.errno != errno.ENOSPC: bad.append((folder, error.errno))
    os.unlink(folder + "/fill")
print("RESULT:", "leaked %s" % bad if bad else "blocked")
