"""The fake server as a program that a run can start: ``generation.command = [python, fake_program.py, FOLDER]``.

It leaves its arguments and environment in FOLDER, in a file called by its port.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

from tests.mlrl_core.generation.vllm.fake_server import FakeServer


def main() -> None:
    folder, *arguments = sys.argv[1:]
    options = dict(itertools.pairwise(arguments))
    port = int(options["--port"])
    server = FakeServer(context=int(options["--max-model-len"]), port=port)
    server.delay_s = 0.05
    facts = {"arguments": arguments, "environment": dict(os.environ), "pid": os.getpid()}
    (Path(folder) / f"{port}.json").write_text(json.dumps(facts))
    time.sleep(300)


if __name__ == "__main__":
    main()
