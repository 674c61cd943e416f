"""What a version of the policy is worth: fresh solutions, no training."""
