# expect: status=ok; result=blocked; new namespaces can't be had by clone3, unshare or setns
import ctypes, os, struct, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
libc = ctypes.CDLL(None, use_errno=True); bad = []
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000):
    args = ctypes.create_string_buffer(struct.pack("8Q", flag, 0, 0, 0, 17, 0, 0, 0))
    got = libc.syscall(435, args, 64)
    if got == 0: os._exit(0)
    if got > 0: os.waitpid(got, 0); bad.append("clone3 %x" % flag)
for name in os.listdir("/proc/self/ns"):
    fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
    if libc.setns(fd, 0) == 0: bad.append("setns " + name)
    os.close(fd)
print("RESULT:", "leaked %s" % bad if bad else "blocked")
