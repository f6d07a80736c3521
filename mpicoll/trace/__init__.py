"""Tell where a program spends its communication, by the trace of ``MPICOLL_TRACE``."""
