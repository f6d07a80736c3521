"""The notation of algorithms: schedules, collectives, operators, sweeps of parameters."""
