"""Several processes of one service: a supervisor, front ends, and one engine process.

cli/serve.py starts the supervisor, which starts the others (child.py). A front end answers HTTP on
a socket of the shared port. It sends batches to the engine process (remote_runner.py), encodes
small ones itself (local_encoders.py), follows the engine process's list of vocabularies
(registry_replica.py), and forwards what is one for all (request_forwarding.py). engine_server.py
answers it; link/ carries the messages.

Always: the engine, the vocabularies, training and gRPC are in the engine process alone; a change is
answered when every front end has followed; what was not answered when a process ends is refused.
"""
