"""Prefect flows: they compose tasks and hold no logic of their own.

``train`` owns a run; ``rollout`` is one wave of it; ``nightly`` is the scheduled entry.
"""
