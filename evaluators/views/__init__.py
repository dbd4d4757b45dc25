"""The pages of language models and of the evaluator gallery."""
