"""Planning under the `survivors` charge: what stays with its tenant serves on, new is cold."""
