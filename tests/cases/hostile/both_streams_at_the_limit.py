# expect: status=output_limit; output_truncated=true; wall=0..5; the cap counts both streams together
import os
for _ in range(200): os.write(1, b"o" * 50_000); os.write(2, b"e" * 50_000)
print("RESULT: leaked 20 MB")
