"""Runs the parts of a job: in threads, in processes, or on a cluster of Ray.

    threads.py      in this process: the default
    processes.py    in processes of this machine: `warptok corpus --processes N`
    fork_server.py  forks these processes; starts while the command is imported
    ray_cluster.py  on the nodes of a cluster: `warptok corpus --ray ADDRESS`
    remote_part.py  runs one part in a process that one of the last two has started

Invariants: each runner only runs `run_part`, so the bytes of a part do not depend on the runner.
If a node of a cluster is lost, its part continues on another node from the last checkpoint. The
lock of a part prevents two writers, should a lost process in fact still run.
"""
