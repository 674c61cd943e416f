"""A real small model places milestones: whatever it chooses, the program stays the program."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from mlrl_core.cache import cache_dir
from mlrl_core.errors import InfraError
from mlrl_core.generation.frozen import TransformersModel
from mlrl_core.instrumentation import instrument, new_nonce
from mlrl_core.models.smollm2 import prepare_smollm2
from tests.mlrl_core.instrumentation.marked import marked_programs, placed_right
from tests.mlrl_core.instrumentation.varied import run_program, varied_programs, write_inputs
