"""Language models that a run can start from: fetched, converted, warm-started, each once and kept in the cache."""
