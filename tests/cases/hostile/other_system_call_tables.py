# expect: status=ok; result=blocked; calls by the tables of x32 and of 32-bit programs are no way around the filter
import ctypes, mmap, os, sys
if os.environ.get("MLRL_SANDBOX") not in ("docker", "bwrap"): sys.exit("only inside a sandbox")
libc = ctypes.CDLL(None, use_errno=True); bad = []
if libc.syscall(0x40000000 + 39) >= 0: bad.append("x32 getpid")
child = os.fork()
if child == 0:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))(); os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if status >= 0: bad.append("int 0x80: %d" % status)
print("RESULT:", "leaked %s" % bad if bad else "blocked")
