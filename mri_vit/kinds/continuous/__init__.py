"""A number, such as age, Ki-67 or methylation in per cent."""
