"""Run an unmodified program for gloo with our collectives: ``python -m torchcoll.run``."""
