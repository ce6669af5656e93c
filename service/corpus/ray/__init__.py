"""Runs the parts of a job on a cluster of Ray: `warptok corpus --ray ADDRESS`.

    runner.py   in the process of the command: gives out the parts, waits, and adds up
    part.py     in a process of a node: runs one part by `run_part`

Invariants: a node only runs `run_part`, so the bytes of a part are those of a local run. If a node
is lost, its part continues on another node from the last checkpoint; if the lost node is in fact
still running, the lock of the part prevents two writers. Nodes share the files and the folder of
the shards.
"""
