"""Joins waiting requests into batches, and returns to each request its rows of the results.

An operation makes a `WorkItem` of its request and submits it to the `Batcher`, which admits it and
keeps the queues fair between clients. A `BatchRunner` runs each batch: the one of `runner` on an
engine of this process, that of multiprocess/remote_runner.py in the engine process.
`runner.run_works` joins the work items of a batch and splits the output into one `Result` per work
item.

Everything runs on the event loop's thread, except for `run_works` and its callees. A request is
never split across batches. An accepted request is answered or refused exactly once, and counted at
that time. A refused row does not affect other rows. This package depends neither on HTTP nor on the
contents of a vocabulary.
"""
