# expect: status=ok; wall=0..4; two processes that start each other again are gone with the run
import os, sys, time
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
def guard(depth):
    os.setsid(); end = time.monotonic() + 40
    while time.monotonic() < end and depth < 25:
        child = os.fork()
        if child == 0: guard(depth + 1)
        os.waitpid(child, 0)
    os._exit(0)
if os.fork() == 0: guard(0)
time.sleep(0.3); print("RESULT: left", flush=True)
