"""What people look at: pages, figures and terminal views."""
