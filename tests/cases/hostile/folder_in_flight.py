# expect: status=ok; wall=0..4; submission=missing; result=sent; files of the output folder that travel in a circle of sockets are no leftovers
import os, socket
a, b = socket.socketpair()
for number in range(20):
    held = os.open("big%d" % number, os.O_CREAT | os.O_RDWR); os.write(held, b"x" * (1 << 20))
    socket.send_fds(a, [b"x"], [held, os.open(".", os.O_RDONLY), a.fileno(), b.fileno()]); os.close(held)
print("RESULT: sent", flush=True)
