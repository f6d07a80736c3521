"""Tell where a program spends its communication, from what ``MPICOLL_TRACE`` has written."""
