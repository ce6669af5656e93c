"""Waiting requests become batches: admission, fair queues and two lanes (queues.py), and runners.

Operations make a `WorkItem` of a request and give it to the `Batcher`; the HTTP and gRPC servers
wait for its `Result`. A `BatchRunner` has a batch computed: by an engine of this process here
(runner.py), by the engine process in a front end (multiprocess/remote_runner.py).

Always: all of it belongs to the event loop's thread but the functions of batch.py; a request is
never split over batches; accepted work is answered or refused exactly once, and counted then; one
refused row refuses no other row. Knows neither HTTP nor what a vocabulary means.
"""
