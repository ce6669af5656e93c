"""What every way of encoding a batch shares.

`resources` has what all calls of an engine share: the device, memory, threads. `row_options` turns
options into arrays and findings into errors. `transfer` packs a batch, launches kernels and fetches
what they report. `plan` says which kernels, and in which order.

`small`, `large`, `decode`, `windows` and `augmented` call it. One function writes the words of the
Job that describe a batch (`transfer.put_batch`). No module here knows how large a batch is, nor how
many are in flight.
"""
