"""The jobs, one short file each: the order of the steps, and what is committed when."""
