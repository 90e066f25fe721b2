"""A plan and events in, instructions out: the part between deciding and acting."""
