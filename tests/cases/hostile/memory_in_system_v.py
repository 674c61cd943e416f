# expect: status=oom; oom_seen=true; wall=0..5; System V shared memory counts
import ctypes, os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p; libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
ident = libc.shmget(0, ctypes.c_size_t(512 << 20), 0o1600)
if ident < 0: sys.exit("no segment")
address = libc.shmat(ident, None, 0); libc.shmctl(ident, 0, None); ctypes.memset(address, 1, 512 << 20)
print("RESULT: leaked 512 MiB")
