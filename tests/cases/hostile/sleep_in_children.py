# expect: status=ok; wall=2..6; idle_suspect=true; a sleeping child makes no work
import subprocess
subprocess.run(["sleep", "2.5"])
