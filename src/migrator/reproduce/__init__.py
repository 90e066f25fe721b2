"""Reproduction of the paper's evaluation: experiments by name, with shared runs, on one page."""
