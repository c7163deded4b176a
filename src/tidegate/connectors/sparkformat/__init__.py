"""Spark: any data source of Spark as a source or a sink, by `format` and `options`."""
