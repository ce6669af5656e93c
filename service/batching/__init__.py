"""Joins waiting requests into batches, has them computed, and gives each request its rows.

An operation makes a `WorkItem` of its request and submits it to the `Batcher`, which admits it and
keeps the queues fair between clients. A `BatchRunner` has each batch computed: `runner` by an
engine of this process, multiprocess/remote_runner.py by the engine process. `runner.run_works`
joins the work items of a batch and splits its output into a `Result` for each.

Everything but `run_works` and what it calls runs on the event loop's thread. A request is never
split over batches. An accepted request is answered or refused exactly once, and counted then; a
refused row refuses no other row. Nothing here knows HTTP, or the meaning of a vocabulary.
"""
