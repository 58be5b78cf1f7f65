"""A marker that a patient has or has not."""
