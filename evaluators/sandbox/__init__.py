"""What locks in a script that a member wrote: first of all, what this machine offers for it."""
