# expect: status=ok; submission=ok; wall=0..4; a daemon that goes on writing to the submission dies with the run
import os, sys, time
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
open("submission.csv", "w").write("id,y\n1,1\n2,0\n")
if os.fork() == 0:
    os.setsid(); os.close(1); os.close(2); end = time.monotonic() + 30
    while time.monotonic() < end:
        open("later.csv", "a").write("x" * 1000); time.sleep(0.001)
    os._exit(0)
time.sleep(0.2)
