"""Defines engines, which compute ids, and contains the code that all engines share.

`base` defines an engine as a `Codec`, a `VocabularyHost` and a `DeviceSharing`. The engines are in
cpu/ and hybrid/; a front end uses a `RemoteEngine` (multiprocess/remote_engine.py). Batch runners
call the engines, and the registry loads vocabularies into them.

Every id equals the reference's id: `selftest` compares each vocabulary with the reference when it
is loaded. A row that cannot be encoded does not affect other rows (`fault_isolation`). `encoder`
defines the encoders of the CPU engine, and divides rows among them; `concatenate` joins the outputs
of parts of a batch. `eviction` chooses the vocabularies that leave the memory. Engines are
thread-safe. The tests in tests/engines run against every engine.
"""
