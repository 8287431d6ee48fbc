"""The steps of the main job, one page each: their order, and what is committed when."""
