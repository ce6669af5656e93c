"""Large batches and streams in chunks, so that copies and kernels overlap.

`chunking` cuts a batch, `chunk_sizes` says how large chunks are, `chunk_in_flight` takes one
through a workspace, and `pipeline` keeps several in flight. `answer` and `stream_answer` collect
the ids; `pageable_output` brings them to memory that the device does not reach. `gpu.engine`,
`gpu.engine` and `gpu.streaming` call `encode`, `ipc_stream` and the pipeline.

Chunks land in their order, whatever is in flight, so the ids do not depend on it. A batch needs no
more memory than its chunks unless a row cannot be cut.
"""
