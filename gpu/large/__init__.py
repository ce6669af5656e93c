"""Large batches and streams in chunks, so that copies and kernels overlap.

`chunking` divides a batch, `chunk_sizes` chooses the size of chunks, `chunk_in_flight` encodes one
in a workspace, and `pipeline` keeps several in flight. `answer` and `stream_answer` collect the
ids; `pageable_output` copies them to memory that is not pinned.
`gpu.engine` and `gpu.streaming` call `encode`, `ipc_stream` and the pipeline.

Chunks are collected in their order, so the ids do not depend on how many are in flight. A batch
needs no more memory than its chunks, unless a row must not be split.
"""
