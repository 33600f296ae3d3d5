"""The worker: the command `tidegate-worker` claims jobs, runs them in processes, and reports how they ended."""
