"""Generates CDCv2 file topics from a seed, mangled in any way, together with their ground truth.

`options.GenerateOptions`, `generate.generate`, `truth.contents_at`, `truth.read_truth`. Nothing is imported here,
because the command line needs only the options.
"""
