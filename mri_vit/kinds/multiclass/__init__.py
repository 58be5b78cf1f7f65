"""Several classes without an order, such as the types of the WHO 2021 classification."""
