# expect: status=ok; wall=0..4; pieces of the start line and of control bytes at the ends of chunks are ordinary output
import os, time
for piece in (b"\x01", b"MLRL", b"-START", b"\n", b"\x01MLRL-START\n\x01MLRL-STA"):
    os.write(1, piece); time.sleep(0.05)
os.write(1, b"\nRESULT: told\n")
