"""The engine's settings file (seatunnel.yaml or tidegate.yaml): read, check, show."""
