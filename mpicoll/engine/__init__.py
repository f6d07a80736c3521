"""Programs bound to memory and messages, ready to run."""
