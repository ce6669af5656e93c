"""DNA sequences: strands, windows, augmentation, the mtDNA tokenizer."""
