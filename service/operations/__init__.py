"""Encode, decode, count, windows and chunks: from a checked request to its answer.

`operation` has the steps that all calls share: the checks, the vocabulary, the work items for the
batcher. `encode`, `decode`, `windows` and `chunks` plan and render one call each. `schemas` and
`query_schemas` describe requests; `arrays` checks arrays of ids and offsets. `context` holds the
state that the operations of one service share; `stream_budget`, `readiness` and `description`
belong to it.

Called by the routes of all protocols.

An operation plans without waiting, waits for its batch, and renders. It knows no HTTP and no gRPC.
"""
