"""Former names of the self-tests, which are in ``tests/selftest`` of the repository."""
