"""Programs under bubblewrap as an ordinary user, for test_ordinary_user.py: one JSON line each."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from mlrl_core.config.environment import SandboxConfig
from mlrl_core.sandbox import open_sandbox


def main() -> None:
    programs, folder = Path(sys.argv[1]), Path(sys.argv[2])
    config = SandboxConfig.model_validate(json.loads(sys.argv[3]))
    env = json.loads(sys.argv[4])
    sandbox = open_sandbox(config, run_key="user", env=env)
    print(json.dumps({"description": sandbox.description}), flush=True)
    for name in sys.argv[5:]:
        source = (programs / f"{name}.py").read_text()
        result = sandbox.run(source, folder / "public", collect_to=folder / "collected.csv")
        print(json.dumps({"name": name, **dataclasses.asdict(result)}), flush=True)
    sandbox.close()


main()
