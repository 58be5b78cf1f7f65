"""Frozen encoders, of others and ours: what they read of prepared patients, as files that comparisons take."""
