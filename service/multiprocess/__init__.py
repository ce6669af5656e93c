"""Runs a service in several processes: a supervisor, front ends, and one engine process.

cli/serve.py starts the `supervisor`, which starts the other processes (`child`). A `front_end`
answers HTTP on a socket of the shared port. It sends batches to the engine process
(`remote_runner`, `remote_engine`) or encodes small ones itself (`local_encoders`). It keeps a copy
of the list of vocabularies (`front_end_registry`), and forwards requests about the state that all
front ends share (`request_forwarding`), with large bodies in a file (`upload_spool`).
`engine_process` runs the engine process, in which `engine_server` answers front ends; link/
transports the messages. gpu_workers/ runs a process for each of several GPUs, even if there are no
front ends.

Only the engine process has the engine, the vocabularies, training and gRPC. A request that changes
vocabularies is answered when every front end has applied the change. When a process ends, its
unanswered requests are refused.
"""
