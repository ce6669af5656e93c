"""The link between a front end and the engine process: messages over a Unix socket.

channel.py is one end of a connection: calls, replies, refusals. frames.py packs messages;
shared_memory.py holds large arrays, which the other side reads where they lie. batch_messages.py
says batches and results as messages, and batch_reply.py answers a batch from the batcher's result.
Front ends call it through `RemoteEngine`, the engine process through `EngineServer`.

Always: a call gets one answer or one refusal, or its caller is told that the link is lost; memory
is lent until the last array of it is garbage. Both ends are of one service and trust each other.
"""
