# expect: status=error; code=255; an exit code out of range is cut, never ok
import os
os._exit(-1)
