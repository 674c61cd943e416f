"""One Prefect task per stage, each a thin wrapper around the library.

Arguments are primitives (run directory, ids): a task finds its output first and returns if it is there, so any task
may be repeated at any time. What they share in a process (sandbox, generator, learner) is in ``tasks.resources``.
"""
