# expect: status=ok; wall=0..4; result=sent; streams that travel in a circle of sockets end with the run
import socket
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [0, 1, 2, a.fileno(), b.fileno()])
print("RESULT: sent", flush=True)
