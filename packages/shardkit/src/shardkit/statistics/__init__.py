"""What the pictures and labels of a dataset are like, exactly."""
