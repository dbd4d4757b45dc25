"""Read texts from outside within limits of size, depth and count: the readers that every entrance shares."""
