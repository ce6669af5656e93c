"""Connects a front end and the engine process with messages over a Unix socket.

`channel` is one end of a connection, with calls, replies and refusals. `frames` packs messages;
`shared_memory` contains large arrays, which the peer reads in place. `batch_messages` converts
batches and results to messages, and `batch_reply` answers a batch with the batcher's result. Front
ends use the link through `RemoteEngine`, and the engine process through `EngineServer`.

Each call gets one answer or one refusal, or EngineLost if the connection ends before. Memory is
lent to the peer until no array refers to it. Both ends belong to one service and trust each other.
"""
