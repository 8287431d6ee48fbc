"""Generates CDCv2 file topics from a seed, mangles them as requested, and writes their ground truth.

Import `options.GenerateOptions`, `generate.generate`, `truth.contents_at` and `truth.read_truth` from their modules.
The package itself imports nothing, because the command line needs only the options.
"""
