"""Spark: any data source of Spark as a source or sink, by `format` and `options`."""
