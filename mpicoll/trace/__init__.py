"""Tell where a program spends its communication, by the flight files of its ranks."""
