"""What a process knows of its machine: cores, nodes, links, GPUs, versions."""
