"""Makes CDCv2 file topics out of a seed, mangled in any way, and knows what is true of them."""

from tidelake.generator.generate import Generated, generate
from tidelake.generator.options import GenerateOptions
from tidelake.generator.truth import Truth, contents_at, read_truth

__all__ = ["GenerateOptions", "Generated", "Truth", "contents_at", "generate", "read_truth"]
