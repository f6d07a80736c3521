"""Choose the algorithm of ``auto`` by decision tables: the measured one, then the shipped one."""
