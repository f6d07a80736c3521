"""Facts of the machine, as a process sees it: cores, nodes, links, GPUs."""
