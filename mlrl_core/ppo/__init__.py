"""PPO as pure tensor functions: no process groups, no transformers, no files (method.md 2, learner.md 3).

Shapes: N responses, R response tokens (right-padded), M tokens in a flat list. ``mask`` is 1 on every sampled token,
the end-of-sequence token included, and is built from lengths, never from ids.
"""
