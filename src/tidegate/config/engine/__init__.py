"""The engine's settings file (seatunnel.yaml): read, checked, shown."""
