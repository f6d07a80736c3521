"""The skeleton that all commands share: flags, launch, watchdog, exit status."""
