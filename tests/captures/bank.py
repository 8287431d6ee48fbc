"""Two tables between which concurrent sessions move money: the sum of all balances never changes."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.captures.workload import Session
from tests.services.postgres import Postgres

BANK = ("accounts", "wallets")
"""The tables. Of the old row of a change, the database logs only the key in `accounts` (the default), and the whole row
in `wallets`."""
TOTAL = 8_000
"""The sum of all balances in both tables, after each transaction."""
_ACCOUNTS, _WALLETS = 8, 20

RECORDS: dict[str, dict[str, Any]] = {
    "accounts": {
        "type": "record",
        "name": "account",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "owner", "type": "string"},
            {"name": "balance", "type": "long"},
        ],
    },
    "wallets": {
        "type": "record",
        "name": "wallet",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "account", "type": "int"},
            {"name": "balance", "type": "long"},
        ],
    },
}
"""The record schemas of the tables' rows."""


def create_bank(postgres: Postgres, database: str) -> None:
    """Create the tables: accounts with money, a few empty wallets, and a table of marks."""
    with postgres.connect(database) as session:
        session.execute("create table accounts (id int primary key, owner text not null, balance bigint not null)")
        session.execute("create table wallets (id int primary key, account int not null, balance bigint not null)")
        session.execute("alter table wallets replica identity full")
        session.execute("create table marks (id serial primary key)")
        for account in range(1, _ACCOUNTS + 1):
            session.execute("insert into accounts values (%s, %s, 1000)", [account, f"Möwe {account}"])
        for wallet in range(1, 4):
            session.execute("insert into wallets values (%s, %s, 0)", [wallet, wallet])


def read_bank(postgres: Postgres, database: str, table: str) -> list[list[Any]]:
    """Return the rows of a table in key order."""
    with postgres.connect(database) as session:
        return [list(row) for row in session.execute(f"select * from {table} order by id").fetchall()]


def move_money(session: Session, table: str, rng: Random) -> int:
    """Make a random change that keeps the sum of all balances, and return how many rows it has changed."""
    account, wallet, choice = rng.randint(1, _ACCOUNTS), rng.randint(1, _WALLETS), rng.random()
    if choice < 0.2:
        opened = session.execute(
            "insert into wallets values (%s, %s, 0) on conflict do nothing", [wallet, account]
        ).rowcount
        return opened
    if choice < 0.3:
        return _close(session, account, wallet)
    if choice < 0.4:  # a change of the key
        new = rng.randint(1, _WALLETS)
        taken = session.execute("select 1 from wallets where id = %s", [new]).fetchone()
        return 0 if taken else session.execute("update wallets set id = %s where id = %s", [new, wallet]).rowcount
    if choice < 0.45:  # two changes of one row that cancel each other
        session.execute("update accounts set balance = balance + 5 where id = %s", [account])
        session.execute("update accounts set balance = balance - 5 where id = %s", [account])
        return 2
    return _move(session, account, wallet, rng.randint(1, 50))


def _move(session: Session, account: int, wallet: int, amount: int) -> int:
    """Move money from an account to a wallet, if the wallet exists."""
    filled = session.execute("update wallets set balance = balance + %s where id = %s", [amount, wallet]).rowcount
    if filled:
        session.execute("update accounts set balance = balance - %s where id = %s", [amount, account])
    return 2 * filled


def _close(session: Session, account: int, wallet: int) -> int:
    """Delete a wallet, and move its money to an account."""
    row = session.execute("delete from wallets where id = %s returning balance", [wallet]).fetchone()
    if row is None:
        return 0
    session.execute("update accounts set balance = balance + %s where id = %s", [row[0], account])
    return 2
