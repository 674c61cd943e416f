"""The run directory: experiences, launches, hand-over files and state. It alone says what is done.

Everything is published by writing beside its place and renaming, so a process may be killed at any moment.
"""

from mlrl_core.experience.run_directory import RunDirectory, solution_id_of, solution_seed
from mlrl_core.experience.store import ExperienceStore

__all__ = ["ExperienceStore", "RunDirectory", "solution_id_of", "solution_seed"]
