"""The memory that the ranks of one node share."""
