"""The knowledge that a rank has of the others of its group, and how long it waits for them."""
