"""GPU memory: the driver, sharing between processes, staging through the host."""
