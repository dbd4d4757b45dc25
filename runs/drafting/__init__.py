"""Cases that a language model drafts: what it reads, what it is asked, and what a person keeps of its replies."""
