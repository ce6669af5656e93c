"""The operations encode, decode, count, windows and chunks: from a checked request to its answer.

`operation` contains the steps that all operations share: the checks, the lookup of the vocabulary,
and the work items for the batcher. `encode`, `decode`, `windows` and `chunks` each plan their calls
and render the answers. `schemas` and `query_schemas` define requests; `arrays` checks arrays of ids
and offsets. `augmented_texts` applies random changes, and `unknown_ids` finds answers with many
unknown ids. `context` defines the state that the operations of one service share; `stream_budget`
limits its streams, and `readiness` and `description` report that state. `rendering/` writes results
as JSON.

The routes of all protocols call the operations.

An operation creates a work item without waiting, waits for its batch, and renders the result. The
operations do not depend on HTTP or gRPC.
"""
