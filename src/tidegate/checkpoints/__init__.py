"""Checkpoints on disk: the layout, the manifest that makes a directory a checkpoint, retention, and
the choice of what to restore.

    <root>/<job-id>/<pipeline-id>/<checkpoint-id>/<operator>/state-data     one for each source and sink, plain JSON
    <root>/<job-id>/<pipeline-id>/<checkpoint-id>/_manifest.json            written last: sizes and checksums of all of them, and of itself

Publishing writes everything into a hidden directory of its own (`.7-g2-<token>`), syncs it, and
renames it; so a checkpoint directory is whole or not there. A directory without a valid manifest is
not a checkpoint, whatever else it holds. Which checkpoints a job has is the store's word
(PipelineState.retained); directories that no record names are swept by the next generation, and
deletions are recorded (PipelineState.doomed) before they are done. What is left when nobody
remembers a job any more is the collector's: classify says what everything below the root is,
quarantine keeps what was collected until it is sure that nobody wants it.
"""
