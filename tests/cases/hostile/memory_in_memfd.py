# expect: status=oom; oom_seen=true; wall=0..5; memory in anonymous files counts
import os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
for _ in range(64): os.write(os.memfd_create("bomb"), b"x" * (8 << 20))
print("RESULT: leaked 512 MiB")
