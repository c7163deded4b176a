"""Checkpoints on disk: layout, manifests, retention, and the choice of what to restore.

Below <root>/<job-id>/<pipeline-id>/<checkpoint-id>/:

    <operator>/state-data     one for each source and sink, plain JSON
    _manifest.json            written last: sizes and checksums of all files, and of itself

Publishing writes everything into a hidden directory (`.7-g2-<token>`), syncs it, and renames it, so
a checkpoint directory is complete or missing. A directory without a valid manifest is not a
checkpoint. The store records which checkpoints a job has (PipelineState.retained). The next
generation sweeps directories that no record names. Deletions are recorded
(PipelineState.pending_deletion) before they are done. What remains when the store no longer knows a
job is collected by gc: `classify` decides about everything below the root, and a quarantine keeps
what was collected until it is certain that nobody needs it.
"""
