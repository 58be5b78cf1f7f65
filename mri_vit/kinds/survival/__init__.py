"""Days to death, or to the last follow-up."""
