"""Generates CDCv2 file topics from a seed, mangled as requested, and their ground truth.

Import `options.GenerateOptions`, `generate.generate`, `truth.contents_at` and `truth.read_truth` from their modules.
This package imports nothing itself, because the command line needs only the options.
"""
