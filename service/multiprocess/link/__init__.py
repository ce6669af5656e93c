"""The link between a front end and the engine process: messages over a Unix socket.

`channel` is one end of a connection, with calls, replies and refusals. `frames` packs messages;
`shared_memory` holds large arrays, which the peer reads in place. `batch_messages` turns batches
and results into messages, and `batch_reply` answers a batch with the batcher's result. Front ends
use the link through `RemoteEngine`, and the engine process through `EngineServer`.

Each call gets one answer or one refusal; if the connection ends before, it gets EngineLost. Memory
is lent to the peer until the last array of it is garbage. Both ends belong to one service and trust
each other.
"""
