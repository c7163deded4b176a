"""Assert: a sink that keeps nothing and fails the job where a rule does not hold."""
