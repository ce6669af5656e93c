"""Runs unknown regular expressions in separate processes, which can be killed.

An `IsolatedEncoder` (`isolated_encoder`) encodes vocabularies that `may_take_long`; its processes
run `worker`. `worker_process` starts a worker, calls it through `messages`, and kills it when a
call uses more CPU time than allowed. `isolated_witness` verifies such a vocabulary in a worker.
`measurement` times the patterns of an upload on the texts of `hostile_texts`, and refuses slow
ones.

The CPU engine calls the encoder, and the registry calls the measurement. The process of the service
never compiles or runs an unknown pattern. Known patterns run in the service's process without this
overhead.
"""
