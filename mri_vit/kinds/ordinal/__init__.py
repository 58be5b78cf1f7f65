"""Several classes in an order, such as WHO grades."""
