"""Lower schedules to programs: messages, or instructions over shared memory."""
