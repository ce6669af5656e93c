"""What a vocabulary is: a frozen value, its checks, its canonical form, its tables."""
