"""An asset of your own downstream of a lake: SQL over a published table, run after each seal that moves it."""
