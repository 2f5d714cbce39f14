"""What makes graphs faster on a CPU: passes, and the pipeline that has them."""
