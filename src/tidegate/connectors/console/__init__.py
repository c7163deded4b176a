"""Console: prints the rows of every committed batch."""
