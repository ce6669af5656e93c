"""Tables of k-mer and character tokenizers (Nucleotide Transformer, DNABERT-1, HyenaDNA).

`letter_tables` says what each letter is, and which id it has alone; `two_bit_letters` describes
alphabets of four letters that two bits tell apart. `gpu/vocabulary` calls them when a vocabulary
is loaded. `equal_length_rows` looks, for each batch, whether all rows are of one length;
`gpu/batch` calls it.

NumPy only: nothing here knows a device. The kernels of `cuda/kmers` check each guess about rows.
"""
