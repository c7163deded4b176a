"""Starts and stops drivers, and finds what they run on.

Called by the command line and the worker; knows nothing of Spark.
"""
