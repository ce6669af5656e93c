"""What both ways of encoding a batch share: row options, the plan, the transfer to the device."""
