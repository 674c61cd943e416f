# expect: status=ok; wall=1..6; idle_suspect=false; work of children counts as work
import os, time
end = time.monotonic() + 2.5
child = os.fork()
while child == 0 and time.monotonic() < end: pass
if child == 0: os._exit(0)
os.waitpid(child, 0)
