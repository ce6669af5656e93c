"""Tables of k-mer and character tokenizers (Nucleotide Transformer, DNABERT-1, HyenaDNA).

`letter_tables` gives each letter its class and its ids. `two_bit_letters` describes alphabets of
four letters that differ in two bits of their codes. `gpu/vocabulary` calls both when a vocabulary
is loaded. `equal_length_rows` guesses for each batch whether all rows have one length; `gpu/batch`
calls it.

NumPy only, without a device. The kernels of `cuda/kmers` check each guess about rows.
"""
