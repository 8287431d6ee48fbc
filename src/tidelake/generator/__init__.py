"""Makes CDCv2 file topics out of a seed, mangled in any way, and knows what is true of them.

`options.GenerateOptions`, `generate.generate`, `truth.contents_at`, `truth.read_truth`. Nothing is imported here: the
command line needs the options alone.
"""
