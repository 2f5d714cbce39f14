"""What stands against capturing a step, found before and by trying."""
