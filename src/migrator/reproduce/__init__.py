"""The paper's evaluation, redone: experiments by name, their runs shared, one page."""
