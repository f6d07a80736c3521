"""What schedules are lowered to: messages, or instructions over shared memory."""
