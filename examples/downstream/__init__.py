"""An asset of your own downstream of a lake: SQL over a published table, run each time the table is updated."""
