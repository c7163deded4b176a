"""Talks to the servers of an installation: one client for several of them, so that the death of one
is not its user's business.

Reads and wishes may be repeated at another server: a wish says what shall be, and a submit carries
the id that the job shall have, so that it is taken in once however often it is sent. Standard
library only; used by the command line, and by whoever imports it.
"""

from tidegate.client.client import Client, NotAllowed, Refused, Unreachable

__all__ = ["Client", "NotAllowed", "Refused", "Unreachable"]
