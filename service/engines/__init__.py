"""Engines, which compute ids, and the code that all engines share.

`base` defines an engine as a `Codec`, a `VocabularyHost` and a `DeviceSharing`. The engines are in
cpu/ and hybrid/; a front end has a `RemoteEngine` (multiprocess/remote_engine.py). Runners of
batches call them, and the registry loads vocabularies on them.

Every id equals the reference's id: `selftest` compares each vocabulary with the reference when it
is loaded. A row that cannot be encoded is refused alone (`fault_isolation`). Several threads may
call an engine at once. tests/engines holds all engines to the same contract.
"""
