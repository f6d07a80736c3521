"""The harness of `mpicoll.bench` where no MPI is installed: torch.distributed alone."""
