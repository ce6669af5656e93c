"""What happens to a text before the model: normalizers, pretokenizers, Unicode classes."""
