"""Runs a service in several processes: a supervisor, front ends, and one engine process.

cli/serve.py starts the `supervisor`, which starts the other processes (`child`). A `front_end`
answers HTTP on a socket of the shared port. It sends batches to the engine process
(`remote_runner`, `remote_engine`) or encodes small ones itself (`local_encoders`). It keeps a copy
of the list of vocabularies (`front_end_registry`), and forwards requests about the state that all
front ends share (`request_forwarding`). `engine_server` answers front ends; link/ carries the
messages. gpu_workers/ has a process for each of several GPUs, also where there are no front ends.

The engine, the vocabularies, training and gRPC are in the engine process alone. A change of
vocabularies is answered when every front end has it. When a process ends, its unanswered requests
are refused.
"""
