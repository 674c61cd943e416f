"""Configuration: typed, closed, and written once. Unknown keys are refused with the nearest right name.

``load_config(profile, overrides)`` is the one way in; the resolved configuration is written to
``<run>/config.toml`` and its digest goes into every version's manifest.
"""

from mlrl_core.config.load import config_digest, dump_toml, load_config, load_run_config, profile_names
from mlrl_core.config.root import RunConfig

__all__ = ["RunConfig", "config_digest", "dump_toml", "load_config", "load_run_config", "profile_names"]
