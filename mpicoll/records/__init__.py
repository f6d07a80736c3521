"""The records that a run leaves on the disk."""
