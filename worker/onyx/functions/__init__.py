"""What functions of users may say of their segments."""
