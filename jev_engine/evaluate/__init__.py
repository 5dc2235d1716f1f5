"""Public evidence of how often a compaction removes what was needed."""
