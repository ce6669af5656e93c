"""Runs unknown regular expressions in processes that can be killed.

A vocabulary that `may_take_long` is encoded by an `IsolatedEncoder` (`isolated_encoder`), whose
processes run `worker`; `worker_process` starts one, calls it by `messages`, and kills it when it
uses more processor time than its call may. `isolated_witness` verifies such a vocabulary there.
`measurement` times the patterns of an upload on the texts of `hostile_texts`, and refuses slow
ones.

The CPU engine calls the encoder, and the registry the measurement. The process of the service never
compiles or runs an unknown pattern. Known patterns run in it, and pay nothing.
"""
