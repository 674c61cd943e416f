"""Competitions made from real tables that installed packages carry, and synthetic ones from a seeded generator."""

from mlrl_core.competitions.builtin.specs import BUILTIN, BuiltinSpec

__all__ = ["BUILTIN", "BuiltinSpec"]
