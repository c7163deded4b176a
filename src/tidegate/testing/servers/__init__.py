"""Real servers that tests start for themselves: private directories, free ports on the loopback
interface, ended by pid.
"""
