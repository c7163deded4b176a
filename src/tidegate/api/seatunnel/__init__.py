"""SeaTunnel's REST API, version 2: its paths, shapes and meanings."""
