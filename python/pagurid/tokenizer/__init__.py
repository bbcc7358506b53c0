"""Tokenizers: text to ids and back, chat templates, the detokeniser's vocabulary."""

from pagurid.tokenizer.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
