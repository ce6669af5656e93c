"""Runs training jobs, which learn vocabularies from uploads, one at a time.

`jobs` manages the queue and runs its jobs; `job_store` and `job_folder` store the jobs and their
files; `process` starts and watches the process of a job, and `worker` is the program of this
process. `device` chooses between the CPU and a GPU, which `device_selftest` checks first. `inputs`
reads the additional files of a corpus; `schemas` defines jobs in the API and on disk.

The native routes call this package; the command line uses only `device` and `inputs`. Training
never runs in the process that answers requests. A job belongs to the process that holds the lock of
its folder, and can be resumed after a restart from the files in this folder.
"""
