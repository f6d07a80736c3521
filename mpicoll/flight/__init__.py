"""The flight recorder: the last calls of each rank, in a file that outlives the rank."""
