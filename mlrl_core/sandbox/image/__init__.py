"""The sandbox image: what is in it, how it is built without a registry, how it is found again."""
