"""The public test kit: parts that fail on purpose, contract suites for backends, in-process stand-ins. Production never imports it."""
