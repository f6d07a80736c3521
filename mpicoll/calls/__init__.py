"""From a caller's arguments to a plan that runs."""
