"""The steps that small and large batches have in common.

`resources` holds what all calls of an engine share: the device, memory and threads. `row_options`
turns options into arrays for kernels, and what kernels report into errors. `transfer` packs a
batch, launches kernels and fetches their report. `kernel_choice` chooses the
kernels and their order.

`small`, `large`, `decode`, `windows` and `augmented` call these modules. Only
`transfer.put_batch` writes the words of the Job that describe a batch. No module here depends on
the size of a batch or on how many are in flight.
"""
