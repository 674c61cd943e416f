"""The helper: a small process of its own that prepares, starts, watches and ends one program at a time.

It runs under ``python -I -S`` (standard library only), is single-threaded, so that it may fork, and owns what a run
needs from the kernel: a private mount namespace, control groups, the change of user. It ends with its parent: when
the control socket closes it kills the program and cleans up.
"""
