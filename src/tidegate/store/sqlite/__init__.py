"""The store in one SQLite file, shared by the processes of one host.

The path of one transaction, `Store.transact(checks, writes)`:

1. `base.Store.transact` validates and encodes it, and gives it a token: a random name, and the
   newest revision that this process knows.
2. `backend.SqliteBackend.apply`: without writes it is one read transaction that compares versions.
   Otherwise it goes into the queue of `combine.Combiner`.
3. The thread that gets `StoreFile.writer_mutex` takes all queued transactions as one batch, so that
   they share one fsync. The other threads find their outcome when they get the mutex.
4. `SqliteBackend._commit_batch` opens `StoreFile.write_transaction_locked`: it checks that the path
   still leads to the open file, takes the lock file (lock.py) that excludes the other processes,
   and begins an SQLite transaction.
5. Two queries read the versions that the batch needs and its voided tokens.
   `write_batch.decide_batch` decides in memory, one transaction after the other: each gets a
   revision or a `Conflict`. A few statements write the entries, the change log and the tokens.
6. COMMIT, then the file's identity is checked again. If the commit may or may not have happened,
   the outcome is `AnswerLost`, and `Store.transact` reads it back by the token
   (`resolve_outcome`): written, or voided so that it can never be written.

file.py owns connections, identity and forks; backend.py owns SQL; write_batch.py is pure.
"""
