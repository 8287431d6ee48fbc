"""Publishing a collection as CDCv2: what each publisher states, and how it learns what has already been stated."""
