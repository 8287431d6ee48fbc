"""The four steps of the main job, each a page: the order of the steps, and what is committed when."""
