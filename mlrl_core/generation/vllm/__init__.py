"""Sampling by vLLM servers over HTTP (learner.md 9): environment, server processes, client, adapters, backend."""
