"""Files of the checkpoint storage: local disks, S3, and whatever fsspec reads."""
