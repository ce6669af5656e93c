"""The hybrid engine: the GPU for large batches, the CPU engine for all others.

server/app.py makes a `HybridEngine` where there is a GPU. residency.py brings vocabularies to the
GPU in the background and compares it with the CPU (selftest.py); crossover.py measures from which
size on it is faster; fallbacks.py counts what it was meant for and did not do; telemetry.py says
how long its stages take and who has its memory.

Always: the GPU answers only for a vocabulary on which it agreed with the CPU; whatever it cannot
do, the CPU does, and that is counted by reason. Of CUDA it knows only what can go wrong.
"""
