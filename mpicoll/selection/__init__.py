"""Choose the algorithm of ``auto``: by decision tables, or by price where there is none."""
