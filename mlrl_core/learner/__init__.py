"""The learner: one update in, one published version of the policy out.

``LearnerClient`` (client.py) owns the learner's process; ``Engine`` (engine.py) is the update itself.
"""
