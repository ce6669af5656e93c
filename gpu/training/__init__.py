"""Learning a vocabulary by byte-pair encoding on the device.

`merger` counts pairs and merges the best one, again and again, with the kernels of
`cuda/training`; `device_corpus` lays the corpus and the table of pairs out in device memory.
`service/training` calls `merger_on`.

The merges, their figures and the states that a training is continued from are those of
`vocabularies.training.merger.CpuMerger`.
"""
