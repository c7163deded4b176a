"""HTTP client for the servers of an installation; fails over between them.

Reads and commands can be repeated at another server: a command sets a desired state, and a submit
carries the id of the new job, so that it has an effect only once. Standard library only. Used by
the CLI, and by applications.
"""

from tidegate.client.client import Client, NotAllowed, Refused, Unreachable

__all__ = ["Client", "NotAllowed", "Refused", "Unreachable"]
