# expect: status=ok; result=blocked; names in the temporary folder and in shared memory are capped
import os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
bad = []
for folder in ("/tmp", "/dev/shm"):
    made = 0
    try:
        for made in range(20000): os.close(os.open("%s/n%d" % (folder, made), os.O_CREAT | os.O_WRONLY))
        bad.append((folder, made))
    except OSError as error: print(folder, made, error.strerror)
    for number in range(made): os.unlink("%s/n%d" % (folder, number))
print("RESULT:", "leaked %s" % bad if bad else "blocked")
