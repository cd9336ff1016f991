"""What people look at: counts, pictures of samples, one page with all of it."""
