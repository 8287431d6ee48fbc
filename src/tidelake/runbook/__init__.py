"""What each error means to whoever has to act: its cause, what to do, and the commands for it."""
