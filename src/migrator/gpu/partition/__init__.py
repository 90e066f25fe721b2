"""Layouts, the fewest steps that reach one, and the execution of these steps."""
