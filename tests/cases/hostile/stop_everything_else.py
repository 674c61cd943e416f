# expect: status=error|ok|timeout; wall=0..6; signals to every process of the sandbox end it or change nothing
import os, signal, sys, time
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) != os.getpid():
            try: os.kill(int(pid), number)
            except OSError: pass
time.sleep(0.5); print("RESULT: done")
