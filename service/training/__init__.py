"""Runs training jobs: uploads become vocabularies, one process at a time.

`jobs` has the queue and decides what runs; `job_store` and `job_folder` keep the jobs and their
files; `process` starts and watches the process of a job, and `worker` is the program that it runs.
`device` chooses between the processor and a GPU, which `device_selftest` checks first. `inputs`
reads the files beside a corpus; `schemas` describes jobs to clients and on disk.

Called by the native routes; the command line uses `device` and `inputs` for its own training.

Training never runs in the process that answers requests. A job belongs to the process that holds
the lock of its folder, and its record on disk is enough to continue it after a restart.
"""
