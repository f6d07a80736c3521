"""Compare MPI libraries, algorithms and forms of calls over many launches on this machine."""
