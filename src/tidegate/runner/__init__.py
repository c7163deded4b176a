"""Starts and stops driver processes, and finds the Java they need.

Called by the command line and the worker. It must not import Spark.
"""
