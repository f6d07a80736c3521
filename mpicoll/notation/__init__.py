"""What an algorithm says: schedules, collectives, operators, sweeps of parameters."""
