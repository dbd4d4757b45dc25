"""Reviews: the queue, decisions of reviewers, and how far judges agree with them."""
