"""Checked, interleaved timing: clocks, samples, statistics."""
