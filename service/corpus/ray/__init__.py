"""Runs the parts of a job on a cluster of Ray: `warptok corpus --ray ADDRESS`.

    runner.py   in the process of the command: gives out the parts, waits, and adds up
    part.py     in a process of some node: one part, as `run_part` does it here

What always holds: a node only runs `run_part`, so the bytes of a part are those of a local run; a
part whose node is lost begins anew on another one behind its last checkpoint, and the lock of the
part keeps the lost one out if it still lives. Nodes share the files and the folder of the shards.
"""
