"""What ``auto`` runs: decision tables, and prices where there is none."""
