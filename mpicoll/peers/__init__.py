"""What a rank knows of the others of its group, and how long it waits for them."""
