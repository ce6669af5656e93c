"""The steps that small and large batches have in common.

`resources` holds the device, memory and threads that all calls of an engine share. `row_options`
turns options into arrays for kernels, and reports of kernels into errors. `transfer` packs a
batch, launches kernels and fetches their report. `kernel_choice` chooses the
kernels and their order.

`small`, `large`, `decode`, `windows` and `augmented` call these modules. Only
`transfer.put_batch` writes the words of the Job that describe a batch. No module here depends on
the size of a batch or on the number of batches in flight.
"""
