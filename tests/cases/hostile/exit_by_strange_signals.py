# expect: status=error; code=159; signal=31; an end by a signal of the filter's kind is the program's own
import os, signal, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
os.kill(os.getpid(), signal.SIGSYS)
