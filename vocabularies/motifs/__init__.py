"""Banks of motifs, their files and the measures of how whole they stay."""
