"""Apply changes to a target: write the desired rows of the affected keys in one sealed commit."""
